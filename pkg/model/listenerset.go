package model

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Istio 1.29 does not serve ListenerSets. OpenShift's ingress operator gives those of its Gateways this reason
// (cluster-ingress-operator pkg/operator/controller/listenerset-status).
const (
	listenerSetCondition = "Accepted"
	listenerSetReason    = "UnsupportedByController"
	listenerSetMessage   = "istiod does not serve ListenerSets: it ignores this one. Add its listeners to the Gateway instead"
)

// ListenerSet is a ListenerSet of a Gateway of hypergate whose status does not show that istiod ignores it.
type ListenerSet struct {
	ForeignObject
	Generation int64
	// Created is the creation time.
	Created time.Time
	// Place is where its status gets the condition, see RefusalPlace.
	Place int
}

// Places for a condition in a status that does not have it. All others are the index of the one that it has.
const (
	// PlaceOfAll: there is a status without conditions. Another client can have written the rest of it.
	PlaceOfAll = -2
	// PlaceOfStatus: the status is missing.
	PlaceOfStatus = -3
	// PlaceAtEnd: there are others.
	PlaceAtEnd = -1
)

// RefusalPlace returns where the status of a ListenerSet gets the condition that istiod ignores it. refused reports
// whether it has that condition already. The ingress operator may have written it, with another message.
func RefusalPlace(object map[string]any) (place int, refused bool) {
	field, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions") // of any size
	conditions, is := field.([]any)
	if !is {
		if _, exists := object["status"].(map[string]any); exists {
			return PlaceOfAll, false
		}
		return PlaceOfStatus, false
	}
	for i, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == listenerSetCondition {
			return i, c["status"] == "False" && c["reason"] == listenerSetReason
		}
	}
	return PlaceAtEnd, false
}

// RefusePatch returns the patch that makes a ListenerSet show that istiod ignores it.
func RefusePatch(of ListenerSet, now time.Time) (ForeignPatch, error) {
	condition := map[string]any{
		"type": listenerSetCondition, "status": "False", "reason": listenerSetReason, "message": listenerSetMessage,
		"observedGeneration": of.Generation, "lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
	operation := replace("/status/conditions/"+strconv.Itoa(of.Place), condition)
	switch of.Place {
	case PlaceOfStatus:
		operation = map[string]any{"op": "add", "path": "/status", "value": map[string]any{"conditions": []any{condition}}}
	case PlaceOfAll:
		operation = map[string]any{"op": "add", "path": "/status/conditions", "value": []any{condition}}
	case PlaceAtEnd:
		operation = map[string]any{"op": "add", "path": "/status/conditions/-", "value": condition}
	}
	patch, err := jsonPatch(ReasonRefuseListenerSet, of.ForeignObject, operation)
	patch.reverted = func(object map[string]any) bool {
		_, refused := RefusalPlace(object)
		return !refused
	}
	return patch, err
}
