package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestTheOldestClassesAreServed checks that a new class never replaces an older one, whatever its name is.
func TestTheOldestClassesAreServed(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	var all []model.GatewayClass
	for i := range model.MaxClasses {
		all = append(all, model.GatewayClass{Name: fmt.Sprintf("class-%03d", i), Created: begin})
	}
	if served, beyond := model.Served(all); len(served) != model.MaxClasses || len(beyond) != 0 {
		t.Errorf("%d served and %d beyond of %d", len(served), len(beyond), len(all))
	}
	more := append([]model.GatewayClass{{Name: "a-new-one", Created: begin.Add(time.Second)}}, all...)
	served, beyond := model.Served(more)
	if len(beyond) != 1 || beyond[0].Name != "a-new-one" {
		t.Errorf("beyond is %v", beyond)
	}
	for i, class := range served {
		if class != all[i] {
			t.Fatalf("served, at %d: %v, want %v", i, class, all[i])
		}
	}
}

// TestOldest checks which class is the oldest: of two of the same time, the first by name.
func TestOldest(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	for want, classes := range map[string][]model.GatewayClass{
		"":  nil,
		"a": {{Name: "a", Created: at}},
		"b": {{Name: "a", Created: at.Add(time.Second)}, {Name: "c", Created: at}, {Name: "b", Created: at}},
	} {
		if got := model.Oldest(classes); got != want {
			t.Errorf("the oldest is %q, want %q", got, want)
		}
	}
}
