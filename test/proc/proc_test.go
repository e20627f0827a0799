package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/hang"
	"github.com/hypergate/hypergate/test/proc"
)

// parentEnv makes the test binary start a child, print its process ID and wait.
const parentEnv = "HYPERGATE_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		child, err := proc.Start("child", dir, "sleep", "1000")
		if err != nil {
			panic(err)
		}
		fmt.Println(child.PID())
		select {}
	}
	os.Exit(m.Run())
}

func TestChildDiesWithItsParent(t *testing.T) {
	g := hang.Gomega(t)
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(parent.Start()).To(gomega.Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	g.Expect(err).NotTo(gomega.HaveOccurred())
	cmdline := filepath.Join("/proc", strings.TrimSpace(line), "cmdline")
	// The kernel shows the command line a moment after the program was started.
	g.Eventually(func() ([]byte, error) { return os.ReadFile(cmdline) }).Should(gomega.ContainSubstring("sleep"))

	g.Expect(parent.Process.Kill()).To(gomega.Succeed())
	_ = parent.Wait() // the error is that it was killed
	g.Eventually(func() string {
		data, _ := os.ReadFile(cmdline) // absent or empty: the process has ended
		return string(data)
	}).Should(gomega.BeEmpty())
}

func TestDeathOfAProcessIsExplained(t *testing.T) {
	g := hang.Gomega(t)
	process, err := proc.Start("server", t.TempDir(), "sh", "-c", "echo port in use >&2; exit 3")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, release := process.Guard(t.Context())
	defer release()
	<-ctx.Done()
	g.Expect(context.Cause(ctx)).To(gomega.MatchError(gomega.And(
		gomega.ContainSubstring("server ended (exit status 3)"), gomega.ContainSubstring("port in use"))))
}

func TestMissingProgramIsAnError(t *testing.T) {
	_, err := proc.Start("server", t.TempDir(), "/does/not/exist")
	hang.Gomega(t).Expect(err).To(gomega.MatchError(gomega.ContainSubstring("starting server")))
}
