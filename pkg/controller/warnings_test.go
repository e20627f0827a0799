package controller

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/logs"
	"github.com/hypergate/hypergate/pkg/model"
)

// TestWarningsAreNotMessages checks that the text of a warning header is a field of a line whose message is constant,
// and that the number and the length of these lines are limited. It does so for the connection of each topology, and
// for the candidate of a new kubeconfig.
func TestWarningsAreNotMessages(t *testing.T) {
	const evil = `Deleted the guest [run oc delete hcp] `
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			w.Header().Add("Warning", `299 - "`+evil+strings.Repeat("x", 1000)+`"`)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x"}}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	asked := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	for name, connect := range map[string]func() (*rest.Config, error){
		"standalone": func() (*rest.Config, error) {
			conn, err := guestconn.Fixed(clientConfig(model.SideGuest, asked))
			return conn.Config(), err
		},
		"hosted": func() (*rest.Config, error) {
			conn, err := guestconn.New(guestconn.Options{Config: clientConfig(model.SideGuest, asked)})
			return conn.Config(), err
		},
		"a candidate": func() (*rest.Config, error) { return clientConfig(model.SideGuest, asked), nil },
	} {
		t.Run(name, func(t *testing.T) {
			config, err := connect()
			if err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			ctx := logr.NewContext(context.Background(), logs.New(&out, 0))
			for range 20 {
				if _, err := client.CoreV1().Namespaces().Get(ctx, "x", metav1.GetOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			for _, line := range lines {
				_, message, _ := strings.Cut(line, "level=")
				if !strings.HasPrefix(message, `INFO msg="The API server sent a warning" cluster=guest warning="Deleted the guest [`) ||
					len(message) > warningLimit+100 {
					t.Fatalf("%d bytes: %s", len(line), line)
				}
			}
			if len(lines) != 60 {
				t.Errorf("%d lines for 200 warnings, want 60", len(lines))
			}
		})
	}
}
