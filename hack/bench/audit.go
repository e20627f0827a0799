package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// event is one completed request from an API server's audit log.
type event struct {
	Side      model.Side `json:"-"`
	Stage     string
	Verb      string
	UserAgent string
	// RequestURI identifies a dry run.
	RequestURI               string
	ObjectRef                struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

// kind is the kind of a request. At rest, hypergate is only allowed to watch and to renew its Lease.
type kind string

const (
	kindWatch  kind = "watch"
	kindLease  kind = "lease"
	kindRead   kind = "read"
	kindDryRun kind = "dry run"
	kindToken  kind = "token"
	kindStatus kind = "status"
	kindWrite  kind = "write"
)

func (e event) kind() kind {
	switch {
	case e.Verb == "watch":
		return kindWatch
	case e.ObjectRef.Resource == "leases":
		return kindLease
	case e.Verb == "get" || e.Verb == "list":
		return kindRead
	case strings.Contains(e.RequestURI, "dryRun=All"):
		return kindDryRun
	case e.ObjectRef.Subresource == "token":
		return kindToken
	case e.ObjectRef.Subresource == "status":
		return kindStatus
	default:
		return kindWrite
	}
}

// byController reports whether hypergate sent the request. The only other clients are the bench and the API servers.
func (e event) byController() bool {
	return e.UserAgent != benchAgent && !strings.HasPrefix(e.UserAgent, "kube-apiserver/")
}

func (e event) succeeded() bool { return e.ResponseStatus.Code/100 == 2 }

// id returns the side, the resource, and the namespace/name of the object.
func (e event) id() string {
	return objectID(e.Side, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name)
}

func objectID(side model.Side, resource, namespace, name string) string {
	return fmt.Sprintf("%s %s %s", side, resource, strings.TrimPrefix(namespace+"/"+name, "/"))
}

// auditLog reads an audit log as it grows.
type auditLog struct {
	side   model.Side
	file   *os.File
	rest   []byte // the beginning of a line whose end is not written yet
	events []event
}

func openAudit(side model.Side, path string) (*auditLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log of the %s side: %w", side, err)
	}
	return &auditLog{side: side, file: file}, nil
}

func (l *auditLog) read() error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("reading the audit log of the %s side: %w", l.side, err)
	}
	l.rest = append(l.rest, data...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte{'\n'})
		if !found {
			return nil
		}
		l.rest = rest
		e := event{Side: l.side}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("reading the audit log of the %s side: %w", l.side, err)
		}
		if e.Stage == "ResponseComplete" {
			l.events = append(l.events, e)
		}
	}
}
