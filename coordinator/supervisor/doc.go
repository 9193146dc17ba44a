// Package supervisor is for those who judge what agents are about to do: tools of people, and
// services that know a rule.
//
// An action whose contract, or agent, asks for a review is recorded with what undoes it, and then
// waits. [Supervisor.Waiting] lists such actions, the one that has waited longest first. A verdict
// ([Supervisor.Give]) is a record of its own, under the supervisor's name: Allow lets the tool be
// called, Block and Redirect keep it from being called. A verdict may be given at any time, also on
// an action that waits for none. What has happened when it is blocked is undone, with what came
// after it; docs/guide/verdicts.md says what each verdict does in each state of a plan.
//
// A user of role supervisor may do both, and nothing else: `sagenbaum user add compliance --role
// supervisor`.
package supervisor
