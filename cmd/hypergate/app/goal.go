package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/pkg/summary"
)

// exitUnderWay means that a change is in progress, or that hypergate is on hold.
const exitUnderWay = 3

// goal is what --for asks for: that all is well, or that a condition has a status.
type goal struct{ condition, status string }

// well is the goal without --for.
const well = "well"

// parseGoal reads the value of --for, such as "upgradeable" or "progressing=false". Case does not matter.
func parseGoal(value string) (goal, error) {
	name, want, has := strings.Cut(value, "=")
	if strings.EqualFold(name, well) && !has {
		return goal{}, nil
	}
	if !has {
		want = summary.True
	}
	types := summary.ConditionTypes()
	i := slices.IndexFunc(types, func(s string) bool { return strings.EqualFold(s, name) })
	statuses := []string{summary.True, summary.False, summary.Unknown}
	j := slices.IndexFunc(statuses, func(s string) bool { return strings.EqualFold(s, want) })
	if i < 0 || j < 0 {
		return goal{}, fmt.Errorf("--for: unsupported value %q: supported values are well, or one of available, progressing, degraded and "+
			"upgradeable, optionally with =true, =false or =unknown", value)
	}
	return goal{types[i], statuses[j]}, nil
}

// outcome returns whether an installation has reached the goal, or what that requires.
func (g goal) outcome(r summary.Reading) summary.Outcome {
	required := r.State.Outcome()
	if g.condition == "" {
		return required
	}
	unknown := []summary.State{summary.Silent, summary.Overdue, summary.Unreadable, summary.Unreported}
	if r.Summary == nil || slices.Contains(unknown, r.State) {
		return required
	}
	// On hold before the start, or after the end, nothing was observed that a condition could be about.
	if l := r.Summary.Lifecycle; l == summary.Starting || l == summary.Deleting {
		return required
	}
	if g.condition == summary.Upgradeable && r.Summary.HasOldConditions() {
		return max(required, summary.UnderWay) // the condition is from before the pause
	}
	return g.outcomeOf(r.Summary.Condition(g.condition), required)
}

// outcomeOf returns whether a condition has the status of the goal, or what the installation requires.
func (g goal) outcomeOf(c summary.Condition, required summary.Outcome) summary.Outcome {
	switch {
	case c.Status == g.status:
		return summary.Well
	case required == summary.Act:
		return summary.Act
	case c.Type == summary.Upgradeable && c.Status == summary.False && c.Reason != status.ReasonCARotation:
		return summary.Act // it does not change by itself
	default:
		return summary.UnderWay
	}
}

// worst returns the worst outcome of several installations.
func (g goal) worst(readings []summary.Reading) summary.Outcome {
	out := summary.Well
	for _, r := range readings {
		out = max(out, g.outcome(r))
	}
	return out
}

// why returns what the installation with the worst outcome waits for, in one line. It is empty if there is none.
func (g goal) why(readings []summary.Reading) string {
	worst := g.worst(readings)
	i := slices.IndexFunc(readings, func(r summary.Reading) bool { return g.outcome(r) == worst })
	if worst == summary.Well || i < 0 {
		return ""
	}
	r := readings[i]
	out := r.Namespace + " is " + string(r.State)
	if r.Why != "" {
		return oneLine(out + ": " + r.Why)
	}
	if r.Summary == nil || g.condition == "" {
		return oneLine(out)
	}
	c := r.Summary.Condition(g.condition)
	return oneLine(fmt.Sprintf("%s: %s is %s: %s: %s", out, g.condition, c.Status, c.Reason, c.Message))
}

// exitCode returns the exit code of an outcome.
func exitCode(o summary.Outcome) int {
	switch o {
	case summary.Act:
		return exitAct
	case summary.UnderWay:
		return exitUnderWay
	case summary.Well:
	}
	return exitOK
}
