package values

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// shape is the expected form of a value: exactly one of the types below. The interface is sealed.
type shape interface{ isShape() }

type (
	// fields is a mapping with these keys.
	fields map[string]shape
	// each is a mapping with names as keys. key returns what is wrong with a name.
	each struct {
		key func(string) string
		of  shape
	}
	// scalar parses a single value. It returns the value for the charts, or a description of the expected value.
	scalar func(*yaml.Node) (value any, wrong string)
	// items is a list of values of one shape.
	items struct{ of shape }
	// checked is a shape with a rule about the whole value. wrong returns what is wrong with it.
	checked struct {
		of    shape
		wrong func(value any) string
	}
)

func (fields) isShape()  {}
func (each) isShape()    {}
func (scalar) isShape()  {}
func (items) isShape()   {}
func (checked) isShape() {}

// table returns all values that a user can set, under their names in the charts.
func table() fields {
	quantities := fields{"cpu": scalar(quantity), "memory": scalar(quantity)}
	return fields{
		"resources": fields{"requests": quantities, "limits": quantities},
		"global":    fields{"logging": fields{"level": scalar(logLevel)}, "logAsJson": scalar(boolean)},
		"meshConfig": fields{
			"accessLogFile": scalar(text), "accessLogFormat": scalar(text), "accessLogEncoding": oneOf("TEXT", "JSON"),
			"defaultConfig":      fields{"concurrency": scalar(count), "tracing": fields{"sampling": scalar(percent)}},
			"extensionProviders": extensionProviders(), "defaultProviders": defaultProviders(),
		},
		"gatewayClasses": each{className, fields{
			"horizontalPodAutoscaler": fields{"spec": fields{"minReplicas": scalar(replicas), "maxReplicas": scalar(replicas)}},
			"podDisruptionBudget": fields{"spec": checked{fields{
				"minAvailable": scalar(countOrPercent), "maxUnavailable": scalar(countOrPercent),
			}, one}},
			"resources":    fields{"requests": quantities, "limits": quantities},
			"nodeSelector": each{labelKey, scalar(labelValue)}, "tolerations": tolerations(), "topologySpreadConstraints": spreading(),
		}},
	}
}

// one is the rule of a disruption budget.
func one(value any) string {
	if budget, _ := value.(map[string]any); len(budget) > 1 {
		return "should have either minAvailable or maxUnavailable"
	}
	return ""
}

// AllClasses is the key of gatewayClasses that applies to each class.
const AllClasses = "*"

// className checks that a class name is a valid label value, because the defaults of a class are selected by a label.
func className(name string) string {
	if problems := validation.IsValidLabelValue(name); name != AllClasses && (name == "" || len(problems) > 0) {
		return "is neither the name of a GatewayClass nor " + strconv.Quote(AllClasses)
	}
	return ""
}

func text(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" {
		return nil, "should be text"
	}
	return n.Value, ""
}

func boolean(n *yaml.Node) (any, string) {
	value, err := strconv.ParseBool(n.Value)
	if n.ShortTag() != "!!bool" || err != nil {
		return nil, "should be true or false"
	}
	return value, ""
}

// most is the maximum of every number.
const most = 1000

func count(n *yaml.Node) (any, string) {
	value, err := strconv.ParseInt(n.Value, 10, 64)
	if n.ShortTag() != "!!int" || err != nil || value < 0 || value > most {
		return nil, "should be a number from 0 to " + strconv.Itoa(most)
	}
	return value, ""
}

func replicas(n *yaml.Node) (any, string) {
	if value, wrong := count(n); wrong == "" && value != int64(0) {
		return value, ""
	}
	return nil, "should be a number from 1 to " + strconv.Itoa(most)
}

func countOrPercent(n *yaml.Node) (any, string) {
	if percent, is := strings.CutSuffix(n.Value, "%"); is && n.ShortTag() == "!!str" {
		if value, err := strconv.Atoi(percent); err == nil && value >= 0 && value <= 100 {
			return n.Value, ""
		}
	}
	if value, wrong := count(n); wrong == "" {
		return value, ""
	}
	return nil, "should be a number from 0 to " + strconv.Itoa(most) + ", or a percentage such as 50%"
}

// quantity parses a resource quantity of the Kubernetes API. Whole numbers are also quantities.
func quantity(n *yaml.Node) (any, string) {
	value, err := resource.ParseQuantity(n.Value)
	if tag := n.ShortTag(); err != nil || value.Sign() < 0 || !slices.Contains([]string{"!!str", "!!int", "!!float"}, tag) {
		return nil, "should be a quantity such as 50m or 200Mi"
	}
	return n.Value, ""
}

var logLevels = regexp.MustCompile(`^[a-z]+:(none|error|warn|info|debug)(,[a-z]+:(none|error|warn|info|debug))*$`)

// logLevel parses a value for istiod's flag --log_output_level.
func logLevel(n *yaml.Node) (any, string) {
	if n.ShortTag() != "!!str" || !logLevels.MatchString(n.Value) {
		return nil, "should be <scope>:<level>,... such as default:info,ads:debug"
	}
	return n.Value, ""
}

func oneOf(words ...string) scalar {
	return func(n *yaml.Node) (any, string) {
		if !slices.Contains(words, n.Value) {
			return nil, "should be one of " + strings.Join(words, ", ")
		}
		return n.Value, ""
	}
}
