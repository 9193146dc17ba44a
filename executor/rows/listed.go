package rows

import "github.com/sagenbaum/sagenbaum/executor/rowspb"

// PhaseValue is a phase as ListState has it.
func PhaseValue(phase rowspb.Phase) string { return "0123456789"[phase : phase+1] }

// LabelsOf are the values under which ListLabel has a plan.
func LabelsOf(row *rowspb.PlanRow) (labels []string) {
	if row.Declared.GetLabel() != "" {
		labels = append(labels, row.Declared.Label)
	}
	for _, l := range row.Declared.GetLabels() {
		labels = append(labels, l.Key+"="+l.Value)
	}
	return labels
}
