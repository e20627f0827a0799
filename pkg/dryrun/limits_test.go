package dryrun

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/answer"
)

// patch sends a patch of a service through a new recorder, and returns the only record.
func patch(t *testing.T, answers map[string]string) (Write, error) {
	t.Helper()
	recorder := &Recorder{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://api"+service, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := recorder.Wrap("guest")(&server{answers: answers}).RoundTrip(r)
	if err != nil {
		return Write{}, err
	}
	_ = response.Body.Close()
	writes := recorder.Writes()
	if len(writes) != 1 {
		t.Fatalf("recorded: %v", writes)
	}
	return writes[0], nil
}

// TestAnswersAreLimited checks that an answer that would take much more memory than its bytes is not decoded.
func TestAnswersAreLimited(t *testing.T) {
	t.Parallel()
	small, large := `200 {"spec":{}}`, `200 {"spec":[`+strings.Repeat(`{"":0},`, 1<<17)+`0]}`
	for name, answers := range map[string]map[string]string{
		"the object before": {"GET": large, "PATCH": small},
		"the object after":  {"GET": small, "PATCH": large},
	} {
		if _, err := patch(t, answers); !answer.IsTooLong(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := `200 {"spec":"` + strings.Repeat("x", 1<<20) + `"}` // as large as the definition of a CRD
	if w, err := patch(t, map[string]string{"GET": small, "PATCH": whole}); err != nil || len(w.Fields) != 1 {
		t.Errorf("%v, %v", w, err)
	}
}

// TestARecordIsSmall checks that no text of a record is long, whatever the API server answers.
func TestARecordIsSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k\u202e", 10<<10)
	w, err := patch(t, map[string]string{"PATCH": `403 {"message":"denied by w\nhypergate: ` + long + `"}`})
	if err != nil || len(w.Refusal) > longestText || !strings.HasPrefix(w.Refusal, "denied by w hypergate: k k") {
		t.Errorf("%d bytes: %.40q, %v", len(w.Refusal), w.Refusal, err)
	}
	after := `200 {"` + long + `":{"x":1`
	for i := range 40 {
		after += `,"` + strconv.Itoa(i) + `":{"` + long + `":1}`
	}
	w, err = patch(t, map[string]string{"GET": `200 {"` + long + `":{"y":{}}}`, "PATCH": after + "}}"})
	if err != nil || len(w.Fields) != mostFields || w.More != 22 {
		t.Fatalf("%d fields and %d, %v", len(w.Fields), w.More, err)
	}
	for _, field := range w.Fields {
		if len(field) > longestText || !strings.HasPrefix(field, "k k") {
			t.Errorf("%d bytes: %.40q", len(field), field)
		}
	}
}

// TestTheNameOfACreatedObjectIsCut checks the only name that the API server chooses.
func TestTheNameOfACreatedObjectIsCut(t *testing.T) {
	t.Parallel()
	after := map[string]any{"metadata": map[string]any{"name": strings.Repeat("n", 1<<20)}}
	if w := writeOf("guest", http.MethodPost, target{resource: "services"}, nil, http.StatusCreated, after); len(w.Name) != longestText {
		t.Errorf("%d bytes", len(w.Name))
	}
}
