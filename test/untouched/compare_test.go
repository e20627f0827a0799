package untouched

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	before := map[string]string{"a": "1", "b": "1"}
	for name, tc := range map[string]struct {
		after map[string]string
		among []string
		want  string
	}{
		"nothing":              {map[string]string{"a": "1", "b": "1"}, []string{"a"}, ""},
		"one was written":      {map[string]string{"a": "1", "b": "2"}, []string{"a"}, "others were changed"},
		"one is gone":          {map[string]string{"a": "1"}, nil, "others were changed"},
		"one more":             {map[string]string{"a": "1", "b": "1", "c": "1"}, nil, "others were changed"},
		"what must be noted":   {map[string]string{"a": "1", "b": "1"}, []string{"a", "c"}, "c is not among the 2 objects"},
		"and is noted as well": {map[string]string{"a": "1", "b": "2"}, []string{"c"}, "others were changed"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Compare(before, tc.after, tc.among)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v, and should say %q", err, tc.want)
			}
		})
	}
}
