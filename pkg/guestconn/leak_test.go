package guestconn

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// TestNothingIsLeftOfAThousandKubeconfigs: not a goroutine, not a connection, no memory. It does not run beside other tests.
func TestNothingIsLeftOfAThousandKubeconfigs(t *testing.T) {
	// golang.org/x/net/http2 keeps a connection that ended in memory until the timer of its health check runs out: 30 s, if nobody says so.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(20 * time.Second)
	servers := []*apiServer{newAPIServer(t), newAPIServer(t)}
	f := follow(t, servers[0].withCertificate(t, "0"))
	certificates := [2]func(int){}
	for side, server := range servers {
		config := server.withCertificate(t, fmt.Sprint(side))
		certificates[side] = func(i int) {
			config := *config
			config.UserAgent, config.BearerToken = "test", fmt.Sprint(i) // each is another kubeconfig
			f.replace(&config, nil)
		}
	}
	rotate := func(from, to int) {
		for i := from; i < to; i++ {
			watch := f.watch()
			certificates[i%2](i)
			if !f.look(f.ctx) {
				t.Fatal(f.Problem())
			}
			f.expectWho(fmt.Sprint(i % 2))
			if err := <-watch; err == nil {
				t.Fatal("the watch did not end")
			}
		}
		g.Eventually(func() int { return servers[0].open() + servers[1].open() }).Should(gomega.Equal(1))
	}
	heap := func() int {
		runtime.GC()
		runtime.GC() // what has a finalizer or a cleanup goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	rotate(1, 100)
	const slack = 512 << 10
	var settled int
	g.Eventually(func() int {
		was := settled
		settled = heap()
		return max(was-settled, settled-was)
	}, 10*time.Second, 1500*time.Millisecond).Should(gomega.BeNumerically("<", 64<<10))
	goroutines := runtime.NumGoroutine()
	rotate(100, 1100)
	g.Eventually(runtime.NumGoroutine).Should(gomega.BeNumerically("<=", goroutines+2))
	g.Eventually(heap).Should(gomega.BeNumerically("<=", settled+slack))
	t.Logf("%d goroutines before and %d after, %d KiB and %d KiB", goroutines, runtime.NumGoroutine(), settled>>10, heap()>>10)
}
