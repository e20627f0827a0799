package crds_test

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/crds"
)

// A CRD of another owner that would lose fields is not taken over without consent.
func ExampleDecide() {
	wanted := crds.Wanted{Version: "v1.4.1", Channel: "standard"}
	installed := crds.Fact{
		Owner:   crds.Owner{Kind: crds.ThirdParty, Name: "helm"},
		Content: crds.Read,
		Difference: crds.Difference{
			Lost: []crds.Field{{Path: "spec.rules.retry", Versions: []string{"v1"}}},
		},
	}
	decision := crds.Decide(installed, wanted, crds.Policy{Mode: crds.Managed})
	fmt.Println(decision.Verdict, decision.Reason, decision.Verdict.Applies())
	// Output: Blocked NeedsConsent false
}
