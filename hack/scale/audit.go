package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// userPrefix is the prefix of the names of hypergate's users. Each hosted cluster has one user, the same on both sides.
const userPrefix = "hosted-"

// event is the part of an audit log line that is used here.
type event struct {
	Stage          string
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
	StageTimestamp time.Time
}

// tally counts the requests of one hosted cluster. Status writes are writes to the subresource status.
type tally struct{ watches, leases, reads, writes, status int }

// others returns the number of requests that are not allowed at rest: all except watches and renewals of the Lease.
func (t tally) others() int { return t.reads + t.writes + t.status }

// tallies counts the requests of each of hypergate's users.
func tallies(events []event) map[string]tally {
	out := map[string]tally{}
	for _, e := range events {
		if strings.HasPrefix(e.User.Username, userPrefix) {
			t := out[e.User.Username]
			t.add(e)
			out[e.User.Username] = t
		}
	}
	return out
}

// add counts an event. A watch counts when it begins. All other requests count when they are complete.
func (t *tally) add(e event) {
	switch {
	case e.Verb == "watch" && e.Stage == "ResponseStarted":
		t.watches++
	case e.Verb == "watch" || e.Stage != "ResponseComplete":
	case e.ObjectRef.Resource == "leases" && e.Verb == "update":
		t.leases++
	case e.Verb == "get" || e.Verb == "list":
		t.reads++
	case e.ObjectRef.Subresource == "status":
		t.status++
	default:
		t.writes++
	}
}

// active returns the time of the last request by one of hypergate's users that is not allowed at rest.
func active(events []event) (last time.Time) {
	for i, e := range events {
		if t := tallies(events[i : i+1])[e.User.Username]; t.others() > 0 && e.StageTimestamp.After(last) {
			last = e.StageTimestamp
		}
	}
	return last
}

// describe returns the first requests that are not allowed at rest, as text.
func describe(events []event) string {
	var out []string
	for i, e := range events {
		if len(out) < 5 && tallies(events[i : i+1])[e.User.Username].others() > 0 {
			r := e.ObjectRef
			words := strings.Join([]string{e.User.Username, e.Verb, r.Resource, r.Subresource, r.Namespace, r.Name}, " ")
			out = append(out, strings.Join(strings.Fields(words), " "))
		}
	}
	return strings.Join(out, "; ")
}

// auditLog reads an audit log as it grows, and stores the events of hypergate's users.
type auditLog struct {
	file   *os.File
	rest   []byte // the beginning of a line whose end is not written yet
	events []event
}

func openAudit(path string) (*auditLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening an audit log: %w", err)
	}
	return &auditLog{file: file}, nil
}

func (l *auditLog) read() error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("reading an audit log: %w", err)
	}
	l.rest = append(l.rest, data...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte{'\n'})
		if !found {
			return nil
		}
		l.rest = rest
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading an audit log: %w", err)
		}
		if strings.HasPrefix(e.User.Username, userPrefix) {
			l.events = append(l.events, e)
		}
	}
}
