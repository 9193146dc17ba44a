package observe

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Disks asks the file systems of folders; one that tells nothing is left out.
func Disks(disks []Disk) (views []api.Disk) {
	for _, d := range disks {
		if usage, err := vfs.Default.GetDiskUsage(d.Dir); err == nil {
			views = append(views, api.Disk{Store: d.Store, FreeBytes: usage.AvailBytes,
				TotalBytes: usage.TotalBytes})
		}
	}
	return views
}

// diskCollector shows the file systems of Metrics.
type diskCollector struct{ m *Metrics }

var (
	diskFree = prometheus.NewDesc("sagenbaum_disk_free_bytes",
		"Bytes free on the file system of a store: state, tiles, ledger.", []string{"store"}, nil)
	diskTotal = prometheus.NewDesc("sagenbaum_disk_total_bytes",
		"Bytes of the file system of a store.", []string{"store"}, nil)
)

// Describe is as in prometheus.Collector.
func (diskCollector) Describe(out chan<- *prometheus.Desc) { out <- diskFree; out <- diskTotal }

// Collect is as in prometheus.Collector.
func (c diskCollector) Collect(out chan<- prometheus.Metric) {
	for _, d := range Disks(c.m.disks) {
		out <- prometheus.MustNewConstMetric(diskFree, prometheus.GaugeValue, float64(d.FreeBytes),
			d.Store)
		out <- prometheus.MustNewConstMetric(diskTotal, prometheus.GaugeValue, float64(d.TotalBytes),
			d.Store)
	}
}
