package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/bundle"
	"github.com/hypergate/hypergate/pkg/fleet"
	"github.com/hypergate/hypergate/pkg/guestconn"
	"github.com/hypergate/hypergate/pkg/summary"
)

// bundleOptions holds the flags of the command bundle.
type bundleOptions struct {
	mgmt, guest    clusterFlags
	guestNamespace string
	output         string
	maxSize        int64
	timeout        time.Duration
}

const (
	// usualSize and largestSize limit --max-size, in MiB.
	usualSize   = 64
	largestSize = 4096
)

const bundleLong = `Write an archive of what the API servers show of an installation, for a bug report or for support.

The archive has API objects of both sides, and the output of hypergate status. It has no Secret: the command requests
none. Texts that look like credentials are redacted. It has no logs.

The command reads what you are allowed to read. The file errors.txt in the archive says what is missing. Without
--guest-kubeconfig or --guest-context, the archive has the management side alone.

Exit codes:
  0  The archive is written. It can lack what errors.txt names.
  1  An error occurred, and no archive is written. For example, no API server can be read.
  2  The archive is written, and has nothing of one side, because its API server does not answer or refuses. Or the
     namespace has no Lease of hypergate.`

func newBundle() *cobra.Command {
	o := &bundleOptions{}
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write an archive of both sides for support, without Secrets",
		Long:  bundleLong,
		Example: `  # Archive both sides
  hypergate bundle -n clusters-guest1 --context mgmt --guest-context guest1

  # Archive the management side alone
  hypergate bundle -n clusters-guest1 -o guest1.tar.gz

  # Write a folder
  hypergate bundle -n clusters-guest1 --guest-context guest1 -o support/

  # List the files
  hypergate bundle -n clusters-guest1 -o - | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), time.Now(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *bundleOptions) addFlags(flags *pflag.FlagSet) {
	o.mgmt.addFlags(flags)
	o.guest.addGuestFlags(flags)
	flags.StringVar(&o.guestNamespace, "guest-namespace", "openshift-ingress", "System namespace of istiod in the guest.")
	flags.StringVarP(&o.output, "output", "o", "", "File to write, - for stdout, or an existing folder, or a path that "+
		"ends with a slash. There, the archive is a folder and no file. Defaults to hypergate-<namespace>-<time>.tar.gz.")
	flags.Int64Var(&o.maxSize, "max-size", usualSize, "Maximum size before compression, in MiB. What exceeds it is left out.")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "The length of time to wait for all responses.")
}

func (o *bundleOptions) check() error {
	switch {
	case o.timeout <= 0:
		return fmt.Errorf("--timeout: %s must be greater than 0", o.timeout)
	case o.maxSize <= 0 || o.maxSize > largestSize:
		return fmt.Errorf("--max-size: %d is not between 1 and %d", o.maxSize, largestSize)
	}
	o.guest.timeout = o.mgmt.timeout
	return nil
}

func (o *bundleOptions) run(ctx context.Context, now time.Time, out, errOut io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	mgmt, namespace, err := o.mgmt.config()
	if err != nil {
		return err
	}
	var guestConfig *rest.Config
	if o.guest.isSet() {
		if guestConfig, _, err = o.guest.configOf(guestRole()); err != nil {
			return err
		}
		guestConfig = guestconn.Limited(guestConfig)
	}
	ctx, cancel := context.WithTimeoutCause(quiet(ctx), o.timeout,
		fmt.Errorf("timed out after --timeout=%s", o.timeout))
	defer cancel()
	name := "hypergate-" + namespace + "-" + now.UTC().Format("20060102T150405Z")
	to, err := o.destination(out, name, now)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	problems, missing, err := o.collect(ctx, to.archive, namespace, mgmt, guestConfig, now, progressOn(errOut))
	if err := errors.Join(err, to.close()); err != nil {
		return errors.Join(err, to.remove())
	}
	if to.path != "" {
		if n := len(problems); n > 0 {
			fmt.Fprintf(errOut, "hypergate: %s in errors.txt of the archive\n", counted(n, "problem"))
		}
		if _, err := fmt.Fprintf(out, "%s\n", to.path); err != nil {
			return err
		}
	}
	return reportMissing(errOut, missing)
}

// destination is where an archive is written to. path is empty for stdout. Call close when the archive is complete, and
// remove if it is not.
type destination struct {
	archive       *bundle.Archive
	path          string
	close, remove func() error
}

// destination returns where the flag --output says. name is that of the archive. No existing file is changed.
func (o *bundleOptions) destination(out io.Writer, name string, now time.Time) (destination, error) {
	most := o.maxSize << 20
	if o.output == "-" {
		none := func() error { return nil }
		return destination{bundle.New(out, name, now, most), "", none, none}, nil
	}
	if isFolder(o.output) {
		if err := os.MkdirAll(o.output, 0o700); err != nil {
			return destination{}, err
		}
		root, err := os.OpenRoot(o.output)
		if err != nil {
			return destination{}, err
		}
		if err := root.Mkdir(name, 0o700); err != nil {
			return destination{}, errors.Join(err, root.Close())
		}
		path := filepath.Join(o.output, name)
		return destination{bundle.NewFolder(root, name, most), path, root.Close, func() error { return os.RemoveAll(path) }}, nil
	}
	path := cmp.Or(o.output, name+".tar.gz")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return destination{}, err
	}
	return destination{bundle.New(file, name, now, most), path, file.Close, func() error { return os.Remove(path) }}, nil
}

// isFolder reports whether a path is that of a folder: it exists as one, or ends with a slash.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() || strings.HasSuffix(path, string(filepath.Separator))
}

// reportMissing prints what the archive lacks as a whole. If there is anything, it ends the command with code 2.
func reportMissing(errOut io.Writer, missing []error) error {
	if len(missing) == 0 {
		return nil
	}
	for _, err := range missing {
		note(errOut, errorText(err))
	}
	return codeError(exitAct)
}

// collect writes the archive. It returns the problems in errors.txt, and what is missing as a whole: a side that cannot
// be read at all, or the installation. If no side can be read, it returns an error.
func (o *bundleOptions) collect(
	ctx context.Context, archive *bundle.Archive, namespace string, mgmt, guestConfig *rest.Config, now time.Time, shown progress,
) (problems []string, missing []error, err error) {
	if err := archive.Add([]byte(versionsText(ctx, now, mgmt, guestConfig)), "version.txt"); err != nil {
		return nil, nil, err
	}
	found, err := addStatus(ctx, archive, namespace, mgmt)
	if err != nil {
		return nil, nil, err
	}
	var away []error
	sides := []side{{mgmt, bundle.Side{Name: "management", Namespace: namespace, Kinds: bundle.Management()}}}
	if guestConfig != nil {
		sides = append(sides, side{guestConfig, bundle.Side{Name: "guest", Namespace: o.guestNamespace, Kinds: bundle.Guest()}})
	}
	for _, side := range sides {
		done := shown.waits("reading the " + side.Name + " side")
		err := bundle.Collect(ctx, side.config, side.Side, archive)
		done()
		if none, is := errors.AsType[bundle.UnreadError](err); is {
			const permission = "list what docs/reference/bundle.md names"
			away = append(away, accessError("reading the "+none.Side+" side", permission, none.Err))
			continue
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if len(away) == len(sides) {
		return nil, nil, errors.Join(away...)
	}
	if !found {
		missing = append(missing, fmt.Errorf("no Lease of hypergate in %s: %w", where(namespace), errNotInstalled))
	}
	for _, err := range away {
		missing = append(missing, fmt.Errorf("the archive lacks a side: %w", err))
	}
	return archive.Problems(), missing, archive.Close()
}

// side is a side of the archive, and how to reach it.
type side struct {
	config *rest.Config
	bundle.Side
}

// versionsText returns the content of version.txt.
func versionsText(ctx context.Context, now time.Time, mgmt, guestConfig *rest.Config) string {
	out := []string{"time: " + now.UTC().Format(time.RFC3339), "hypergate bundle: " + version}
	for _, of := range []struct {
		name   string
		config *rest.Config
	}{{"management cluster", mgmt}, {"guest", guestConfig}} {
		if of.config == nil {
			continue
		}
		name, found, err := versionOf(ctx, of.name, of.config, "")
		if err != nil {
			found = oneLine(err.Error())
		}
		out = append(out, name+": "+found)
	}
	return strings.Join(out, "\n") + "\n"
}

// addStatus adds the output of the command status in several formats. It reports whether there is an installation, or
// that is not known.
func addStatus(ctx context.Context, archive *bundle.Archive, namespace string, mgmt *rest.Config) (found bool, err error) {
	client, err := fleet.New(mgmt)
	if err != nil {
		return false, err
	}
	readings, now, err := client.Installations(ctx, namespace)
	if err != nil {
		archive.Problem("status: " + oneLine(err.Error()))
		return true, nil
	}
	if len(readings) == 0 {
		readings = []summary.Reading{} // not null
	}
	for _, format := range []string{outputTable, outputJSON, outputHTML} {
		var out strings.Builder
		err := printed(&out, format, statusReport{Installations: readings, now: now, wide: true})
		if _, isCode := errors.AsType[codeError](err); err != nil && !isCode {
			return false, err
		}
		if err := archive.Add([]byte(bundle.Redact(out.String())), "status."+strings.Replace(format, outputTable, "txt", 1)); err != nil {
			return false, err
		}
	}
	return len(readings) > 0, nil
}
