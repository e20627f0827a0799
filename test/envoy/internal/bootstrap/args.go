package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Args are the command line.
type Args struct {
	// Config is the path of the bootstrap configuration.
	Config string
	// DrainTime is how long connections drain.
	DrainTime time.Duration
	// DrainImmediately reports whether every response during a drain ends its connection. Otherwise the probability
	// grows during DrainTime.
	DrainImmediately bool
	// LogLevel is Envoy's: trace, debug, info, warning, error, critical, off.
	LogLevel string
}

// defaultDrainTime is Envoy's default.
const defaultDrainTime = 600 * time.Second

// withValue are Envoy's options that take a value and that do not matter here. pkg/envoy/proxy.go in Istio lists what
// pilot-agent passes.
const withValue = ` --local-address-ip-version --file-flush-interval-msec --file-flush-min-size-kb --component-log-level --concurrency
	--base-id --service-cluster --service-node --parent-shutdown-time-s --log-format --log-path --restart-epoch `

// alone are options without a value that do not matter here.
const alone = ` --disable-hot-restart --allow-unknown-static-fields --skip-deprecated-logs --enable-core-dump
	--reject-unknown-dynamic-fields --ignore-unknown-dynamic-fields `

// Parse reads the command line without the name of the program. An option that changes the configuration and that
// is not supported is an error.
func Parse(args []string) (Args, error) {
	out := Args{DrainTime: defaultDrainTime, LogLevel: "info"}
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		if listed(alone, name) {
			continue
		}
		if !joined {
			if len(args) == 0 {
				return out, fmt.Errorf("option %s is unknown, or its value is missing", name)
			}
			value, args = args[0], args[1:]
		}
		if err := out.set(name, value); err != nil {
			return out, err
		}
	}
	if out.Config == "" {
		return out, fmt.Errorf("option -c (the bootstrap configuration) is missing")
	}
	return out, nil
}

func (a *Args) set(name, value string) error {
	switch name {
	case "-c", "--config-path":
		a.Config = value
	case "-l", "--log-level":
		a.LogLevel = value
	case "--drain-strategy":
		if value != "immediate" && value != "gradual" {
			return fmt.Errorf("option --drain-strategy: %q is neither immediate nor gradual", value)
		}
		a.DrainImmediately = value == "immediate"
	case "--drain-time-s":
		seconds, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("option --drain-time-s: %w", err)
		}
		a.DrainTime = time.Duration(seconds) * time.Second
	default:
		if !listed(withValue, name) {
			return fmt.Errorf("option %s is not supported", name)
		}
	}
	return nil
}

func listed(options, name string) bool {
	for option := range strings.FieldsSeq(options) {
		if option == name {
			return true
		}
	}
	return false
}
