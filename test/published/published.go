// Package published is a server in place of istiod, at the address where gateways reach it. It has the certificate of
// the mesh CA, and says which version it is. No gateway is connected to it.
package published

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
)

// controlPlane and identifier are the fields of an answer that say who answers (envoy.service.discovery.v3).
const controlPlane, identifier protowire.Number = 6, 1

// Listen starts to answer, until the test ends, and returns the address. secret returns the content of the Secret with
// the mesh CA. Without one, a handshake fails.
func Listen(t *testing.T, secret func() map[string][]byte) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	server := &http.Server{
		Handler: http.HandlerFunc(answer), Protocols: protocols, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			ca, _, err := model.CAFromSecret(nil, secret())
			if err != nil {
				return nil, err
			}
			serving, err := ca.Serving(time.Now(), hello.ServerName)
			if err != nil {
				return nil, err
			}
			pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
			return &pair, err
		}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// answer answers a request of xDS with a message that only names the version.
func answer(w http.ResponseWriter, _ *http.Request) {
	text := `{"Component":"istiod","ID":"istiod","Info":{"version":"` + charts.EmbeddedVersion + `"}}`
	message := field(controlPlane, field(identifier, []byte(text)))
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)) //nolint:gosec // it is short
	w.Header().Set("Grpc-Status", "0")
}

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}
