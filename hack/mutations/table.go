package main

import "slices"

// mutation is a change that takes a part of a guarantee out.
type mutation struct {
	// guarantee is the guarantee that the change breaks, by the names of guarantees. what says what is taken out.
	guarantee, what string
	// file is the changed file, from the root of the repository. old occurs once in it, and becomes new.
	file, old, new string
	// test is the test that must fail, in the package pkg.
	pkg, test string
}

// guarantees returns the names of all guarantees about a hostile guest and about faults, in the order of
// docs/reference/reliability.md#guarantees.
func guarantees() []string {
	return []string{"bytes", "lists", "time", "pace", "identity", "restored", "clocks", "sizes", "text", "hangs"}
}

// mutations returns the table.
func mutations() []mutation {
	return slices.Concat(ofAnswers(), ofLists(), ofPasses(), ofPace(), ofTruth(), ofContent(), ofHangs())
}

// ofAnswers returns the mutations about how much of an answer is kept.
func ofAnswers() []mutation {
	return []mutation{
		{
			"bytes", "the limit of a failure's body", "pkg/answer/failure.go",
			"readCloser{&cutJSON{source: io.LimitReader(response.Body, failureRead), code: response.StatusCode}, response.Body}",
			"readCloser{response.Body, response.Body}", "./pkg/answer", "TestFailuresAreTruncatedAndReadable",
		},
		{
			"bytes", "the limit of the answer to a write", "pkg/answer/limit.go",
			"return writeLimit, writeMemory", "return listLimit, readMemory", "./pkg/answer", "TestSuccessfulResponsesAreLimitedByRequest",
		},
		{
			"bytes", "the memory of the elements of an array", "pkg/answer/scanner.go",
			"elementCost = 320", "elementCost = 0", "./pkg/answer", "TestElementsCostWhatTheyTake",
		},
		{
			"bytes", "the limit of the fields of a log line", "pkg/logs/logs.go",
			"line.AddAttrs(fit(fields, LineLimit-overhead-cost(line.Message))...)", "line.AddAttrs(fields...)",
			"./pkg/logs", "TestLinesAreShort",
		},
		{
			"bytes", "the limit of a message's lines", "pkg/logs/logs.go",
			"if !may {", "if !may && false {", "./pkg/logs", "TestFrequentMessagesAreCounted",
		},
		{
			"bytes", "the memory of istiod's proxies", "pkg/proxies/decode.go",
			"a.kept+proxy.size() > mostKept:", "a.kept+proxy.size() < 0:", "./pkg/proxies", "TestKeptProxiesAreLimited",
		},
		{
			"bytes", "the memory of the answers of all istiods", "pkg/proxies/all.go",
			"if sum > mostKeptOfAll {", "if sum < 0 {", "./pkg/proxies", "TestTheAnswersOfAllIstiodsAreLimited",
		},
		{
			"bytes", "the denied Gateways that are gone", "pkg/controller/migrationdenied.go",
			"return !exists[uid] })", "return exists == nil })", "./pkg/controller", "TestDeniedGatewaysAreForgotten",
		},
		{
			"bytes", "the class defaults that preflight keeps", "cmd/hypergate/app/preflightgateways.go",
			"kept > mostClassDefaults {", "kept < 0 {", "./cmd/hypergate/app", "TestPreflightOfAHostileGuest",
		},
	}
}

// ofLists returns the mutations about how much of lists and watches is kept.
func ofLists() []mutation {
	return []mutation{
		{
			"lists", "the limit of a list's bytes", "pkg/watch/budget.go",
			"case c.lists && m.bytes > l.ListBytes:", "case c.lists && m.bytes > l.ListBytes && false:",
			"./pkg/watch", "TestWatchLimits",
		},
		{
			"lists", "the limits of what is kept", "pkg/watch/budget.go",
			"m.weigh(object, m.hold(m.kept+size, m.listing))", "m.hold(m.kept+size, m.listing)",
			"./pkg/watch", "TestWatchLimitsAfterTheList",
		},
		{
			"lists", "one content of a watch that lists again", "pkg/watch/total.go",
			"more, twice := max(kept, listing)-max(m.kept, m.listing), min(kept, listing)-min(m.kept, m.listing)",
			"more, twice := kept+listing-m.kept-m.listing, int64(0)", "./pkg/watch", "TestALargeWatchThatListsAgainTripsNoOther",
		},
		{
			"lists", "the own part of a small watch", "pkg/watch/total.go",
			"case max(kept, listing) <= m.own:", "case max(kept, listing) <= 0:", "./pkg/watch", "TestASmallWatchHasItsOwnPart",
		},
		{
			"lists", "the limit in a condition", "pkg/apply/cause.go",
			`return cause.as(Oversized, "%s", over.Cause())`, `return cause.as(Oversized, "%s", over.Resource)`,
			"./pkg/apply", "TestClassifyPermissions",
		},
		{
			"lists", "what is kept of the classes of others", "pkg/guest/classes.go",
			"if string(class.Spec.ControllerName) != w.controllerName {", "if class.Name == \"\" {",
			"./pkg/guest", "TestForeignClassesKeepLittleMemory",
		},
		{
			"lists", "the pages that preflight reads", "cmd/hypergate/app/preflightgateways.go",
			"Requests: parametersPages}", "Requests: 2 * parametersPages}", "./cmd/hypergate/app", "TestPreflightOfAHostileGuest",
		},
	}
}

// ofPasses returns the mutations about when passes end, and what they wait for.
func ofPasses() []mutation {
	return []mutation{
		{
			"time", "the end of a pass after an event", "pkg/controller/workcontext.go",
			"if reason := t.why(); reason != nil {", "if reason := t.why(); reason != nil && t.end == nil {",
			"./pkg/controller", "TestAWorkContextEndsWithItsCause",
		},
		{
			"time", "the look at the holder of the Lease", "pkg/controller/lease.go",
			`if l.leads() && l.holder != "" && l.holder != l.Identity() {`, `if l.leads() && l.holder == "" {`,
			"./pkg/controller", "TestLeaderStopsWhenItsLeaseIsTaken",
		},
		{
			"time", "the management side first", "pkg/controller/execute.go",
			"out.mgmt = e.mgmt.Apply(ctx, plan.Mgmt)", "<-work.done; out.mgmt = e.mgmt.Apply(ctx, plan.Mgmt)",
			"./test/adversary", "TestTheManagementSideDoesNotWaitForTheGuest",
		},
		{
			"time", "the deadline of the writes of a pass in the guest", "pkg/controller/execute.go",
			"inGuest, over := e.inGuest(ctx)\n\tdefer over()\n\twork := ",
			"inGuest, over := context.WithCancel(ctx)\n\tdefer over()\n\twork := ",
			"./test/adversary", "TestASlowGuestEndsThePassInTime",
		},
		{
			"time", "the deadline of the deletions of a pass in the guest", "pkg/controller/execute.go",
			"inGuest, over := e.inGuest(ctx)\n\tdefer over()\n\tif ",
			"inGuest, over := context.WithCancel(ctx)\n\tdefer over()\n\tif ",
			"./test/adversary", "TestASlowGuestEndsThePassInTime",
		},
		{
			"time", "the time of a pass in the guest", "pkg/controller/observe.go",
			"deadline: time.Now().Add(guestTime)", "deadline: time.Now().Add(2 * guestTime)",
			"./test/adversary", "TestASlowGuestEndsThePassInTime",
		},
		{
			"time", "the end of a pass after another owner", "pkg/controller/observe.go",
			"r.guest.Leases()).(ownership.OwnedByOther); is {", "r.guest.Leases()).(ownership.OwnedByOther); is && false {",
			"./test/adversary", "TestALostOwnershipLeaseEndsThePass",
		},
		{
			"time", "the limit of the time for statuses", "pkg/controller/execute_status.go",
			"if time.Since(begun) > statusTime {", "if time.Since(begun) > 2*statusTime {",
			"./pkg/controller", "TestStatusWritesOfAPassAreLimited",
		},
	}
}

// ofPace returns the mutations about how often something happens.
func ofPace() []mutation {
	return []mutation{
		{
			"pace", "the rate of passes", "pkg/controller/pacer.go",
			"p.ask(max(0, p.began.Add(passSpacing).Sub(now), p.turns.Wait(now), p.storm.Wait(now)))",
			"p.ask(max(0, p.began.Add(passSpacing).Sub(now)))", "./pkg/controller", "TestManyEventsCauseALimitedRateOfPasses",
		},
		{
			"pace", "the spacing of passes", "pkg/controller/pacer.go",
			"p.ask(max(0, p.began.Add(passSpacing).Sub(now), p.turns.Wait(now), p.storm.Wait(now)))",
			"p.ask(max(0, p.turns.Wait(now), p.storm.Wait(now)))", "./pkg/controller", "TestManyEventsCauseALimitedRateOfPasses",
		},
		{
			"pace", "the classes of others, which cause no pass", "pkg/guest/classes.go",
			"if w.concerns(e.Object) || w.concerns(e.Before) {", "if e.Object != nil {",
			"./pkg/guest", "TestForeignClassesDoNotNotify",
		},
		{
			"pace", "the number of statuses that are written at once", "pkg/controller/execute_status.go",
			"writing.SetLimit(statusesAtOnce)", "writing.SetLimit(2 * statusesAtOnce)",
			"./pkg/controller", "TestStatusWritesOfAPassAreLimited",
		},
		{
			"pace", "the pause after the guest denied a release", "pkg/rollout/denied.go",
			"return max(0, refusedTime-now.Sub(d.At))", "return 0", "./pkg/rollout", "TestTheGuestDeniesARelease",
		},
		{
			"pace", "the writes of the report of a migration", "pkg/controller/execute_migration.go",
			"limiter.Wait(now) > 0 {", "limiter.Wait(now) < 0 {", "./pkg/controller", "TestDetailsOfAReportAreWrittenAtAPace",
		},
		{
			"pace", "the readings of a migration whose state changes all the time", "pkg/controller/migrationmemory.go",
			"earliest := now.Add(m.writes.Wait(now))", "earliest := now", "./pkg/controller", "TestTheStateOfAMigrationIsWrittenAtAPace",
		},
		{
			"pace", "the limit of holds in a migration", "pkg/migration/decide.go",
			"if d.counts(d.m.HoldsSince) && int(d.m.Holds) >=", "if d.m.Holds < 0 && int(d.m.Holds) >=",
			"./pkg/migration", "TestForwardWhileGatewaysMove",
		},
		{
			"pace", "the rate of streams that are opened again", "pkg/watch/budget.go",
			"return m.budget.reopenings.Reserve(now, resumeLate-now.Sub(at))", "return 0, true",
			"./pkg/watch", "TestStreamsOfLargeEventsAreReopenedSlowly",
		},
	}
}

// ofTruth returns the mutations about what is believed of a guest and of a clock.
func ofTruth() []mutation {
	return []mutation{
		{
			"identity", "the comparison of two guests", "pkg/guestconn/identity.go",
			`if c.guest == "" || uid == c.guest {`, `if c.guest == "" || uid != "" {`,
			"./pkg/guestconn", "TestTheKubeconfigOfAnotherGuestIsNotUsed",
		},
		{
			"identity", "the server of istiod's credential", "pkg/controller/decide.go",
			"return o.reached\n", "return true\n", "./pkg/controller", "TestDecideWithoutAClaim",
		},
		{
			"identity", "the session of a watch", "pkg/watch/consistent.go",
			"return wait, in == c.in && (listed", "return wait, (listed", "./pkg/watch", "TestNoWatchIsResumedInANewSession",
		},
		{
			"restored", "the list after a lost watch", "pkg/watch/consistent.go",
			"if !resumes {", "if !resumes && false {", "./pkg/watch", "TestWatchResumesWithoutAList",
		},
		{
			"restored", "the list that is as new as a write", "pkg/apply/restored.go",
			"return m.number <= l.begun.answered || !newer(m.rv, l.rv) || l.backwards",
			"return m.number <= l.begun.answered || l.backwards", "./pkg/apply", "TestTrackerListsAndRestores",
		},
		{
			"restored", "the loss of a write that a list does not show", "pkg/apply/restored.go",
			"case s.state == gone || s.uid != r.memo.uid || s.fields != r.memo.fields:", "case s.state == gone:",
			"./pkg/apply", "TestTrackerListsAndRestores",
		},
		{
			"clocks", "a token from the future", "pkg/controller/execute_token.go",
			"|| credential.Issued.After(now) ||", "||", "./pkg/controller", "TestATokenIssuedByAWrongClockIsReplaced",
		},
		{
			"clocks", "a renewal that is too far off", "pkg/controller/execute_token.go",
			" || renewal.Sub(now) > t.lifetime", "", "./pkg/controller", "TestARenewalBeyondTheTokenLifetimeIsIgnored",
		},
		{
			"clocks", "the lead counts from the request", "pkg/controller/lease.go",
			"time.AfterFunc(time.Until(sent.Add(leadTime)), func() {", "time.AfterFunc(leadTime, func() {",
			"./pkg/controller", "TestLeaderStopsDespiteALateRenewal",
		},
		{
			"clocks", "the time of a request for a migration", "pkg/migration/intent.go",
			"i.At.After(now.Add(mostAhead))", "i.At.After(now.Add(1000000*mostAhead))", "./pkg/migration", "TestAWrongTimeOfARequest",
		},
	}
}

// ofContent returns the mutations about the size of contents, and about texts.
func ofContent() []mutation {
	return []mutation{
		{
			"sizes", "the size of an object that a webhook enlarged", "pkg/apply/grown.go",
			"if limit := len(j.JSON()) + grownLimit; got.Size() > limit {", "if limit := len(j.JSON()) + grownLimit; limit < 0 {",
			"./pkg/apply", "TestAnOversizedObjectIsNamed",
		},
		{
			"sizes", "the size of istiod's token", "pkg/guest/requests.go",
			"if len(got.Status.Token) > tokenLimit {", "if len(got.Status.Token) < 0 {",
			"./test/adversary", "TestAnOversizedTokenIsRefused",
		},
		{
			"sizes", "the size of hypergate's own token", "pkg/guest/owntoken.go",
			"if len(token) > tokenLimit {", "if len(token) < 0 {", "./pkg/guest", "TestTokenProblem",
		},
		{
			"sizes", "the loss of a credential that is refused", "pkg/mgmt/secrets.go",
			"held.current = held.accepted", "held.accepted = held.current", "./pkg/mgmt", "TestARefusedCredentialIsNotUsed",
		},
		{
			"text", "characters from right to left", "pkg/text/text.go",
			" || isBlank(r) || isRightToLeft(r) {", " || isBlank(r) {", "./pkg/text", "TestTextsCannotHideOrReorderOthers",
		},
		{
			"text", "brackets of others", "pkg/text/text.go",
			"return round(printable(r))", "return printable(r)", "./pkg/text", "TestTexts",
		},
		{
			"text", "the content of a CRD in a condition", "pkg/status/crds.go",
			"return plain(crd.Explain()) + stepAbout(crd)", "return crd.Explain() + stepAbout(crd)",
			"./pkg/status", "TestForeignTextIsOnePrintableLine",
		},
		{
			"text", "the names of a CRD in a condition", "pkg/status/crds.go",
			"quoted(crd.Definition.Why, longestQuote)", "crd.Definition.Why", "./pkg/status", "TestForeignTextIsOnePrintableLine",
		},
		{
			"text", "the limit of a CRD's names and versions", "pkg/guest/definition.go",
			"if n > maxDefinition {", "if n < 0 {", "./pkg/guest", "TestTheDefinitionOfACRDIsLimited",
		},
	}
}

// ofHangs returns the mutations about requests and passes that hang.
func ofHangs() []mutation {
	return []mutation{
		{
			"hangs", "the deadline of each request", "pkg/controller/bounded.go",
			"ctx, cancel := context.WithTimeout(r.Context(), limit)", "ctx, cancel := context.WithTimeout(r.Context(), 1000*limit)",
			"./pkg/controller", "TestEachRequestHasADeadline",
		},
		{
			"hangs", "the liveness of a pass", "pkg/controller/liveness.go",
			"if ran := now.Sub(w.began); ran > stuckAfter {", "if ran := now.Sub(w.began); ran < 0 {",
			"./pkg/controller", "TestLivenessNoticesAPassThatHangs",
		},
		{
			"hangs", "the liveness of a pass in /healthz", "pkg/controller/run.go",
			"func(*http.Request) error { return r.worker.check(time.Now()) }", "healthz.Ping",
			"./pkg/controller", "TestLivenessNoticesAPassThatHangs",
		},
		{
			"hangs", "pages of namespaces", "pkg/guest/namespaces.go",
			"answer.Pages{Size: namespacePage, ", "answer.Pages{",
			"./pkg/guest", "TestNamespacesAreListedInPages",
		},
	}
}
