package charts

import (
	"fmt"
	"maps"
	"slices"
)

// chartDefaults is the key under which Istio's charts keep their default values. A profile is merged between them and
// the user's values (manifests/zzz_profile.yaml).
const chartDefaults = "_internal_defaults_do_not_set"

// descoped is a table of values that the chart moves one level up (templates/zzy_descope_legacy.yaml).
const descoped = "pilot"

// checkValues checks the form of the caller's values: a table must stay a table, and a list must stay a list. The
// templates would also fail, but with unclear messages about a file that the caller does not know.
func checkValues(chartValues, values map[string]any) error {
	defaults, ok := chartValues[chartDefaults].(map[string]any)
	if !ok {
		defaults = chartValues
	}
	if err := checkTable("", defaults, values); err != nil {
		return err
	}
	if table, ok := values[descoped].(map[string]any); ok {
		return checkTable(descoped+".", defaults, table)
	}
	return nil
}

// checkTable checks one table against its defaults.
func checkTable(path string, defaults, values map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := checkValue(path+key, defaults[key], values[key]); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks one value against its default. The default is nil if the chart has none.
func checkValue(path string, byDefault, value any) error {
	defaultTable, wantTable := byDefault.(map[string]any)
	_, wantList := byDefault.([]any)
	switch v := value.(type) {
	case nil:
		return nil // null has a meaning in Helm, whatever the default is
	case map[string]any:
		if wantList {
			return shapeError(path, "list", "table")
		}
		return checkTable(path+".", defaultTable, v)
	case []any:
		if wantTable {
			return shapeError(path, "table", "list")
		}
		for i, item := range v {
			if err := checkValue(fmt.Sprintf("%s[%d]", path, i), nil, item); err != nil {
				return err
			}
		}
		return nil
	case string, bool, int, int64, float64:
		switch {
		case wantTable:
			return shapeError(path, "table", fmt.Sprintf("%T", v))
		case wantList:
			return shapeError(path, "list", fmt.Sprintf("%T", v))
		}
		return nil
	default:
		return fmt.Errorf("value %s is a Go %T, which YAML does not give: use map[string]any, []any, a string, a bool or a number", path, v)
	}
}

func shapeError(path, want, have string) error {
	return fmt.Errorf("value %s must be a %s, as it is in the chart's own values, and not a %s", path, want, have)
}
