// Package stats has named numbers, and writes them as Envoy's admin endpoints do.
package stats

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Set is a set of numbers by name. The zero value is ready.
type Set struct {
	mu     sync.Mutex
	values map[string]int64
}

// Add adds n to a number, and creates it if necessary.
func (s *Set) Add(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]int64{}
	}
	s.values[name] += n
}

// Put sets a number.
func (s *Set) Put(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]int64{}
	}
	s.values[name] = n
}

// Get returns a number, 0 if there is none.
func (s *Set) Get(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[name]
}

func (s *Set) copy() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values)
}

// Text writes "name: number" for each number whose name matches filter. nil matches all. Numbers that were never
// set do not exist, so that Envoy's parameter usedonly holds always.
func (s *Set) Text(w io.Writer, filter *regexp.Regexp) {
	values := s.copy()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if filter == nil || filter.MatchString(name) {
			fmt.Fprintf(w, "%s: %d\n", name, values[name])
		}
	}
}

// Prometheus writes the numbers in the text format of Prometheus.
func (s *Set) Prometheus(w io.Writer) {
	values := s.copy()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		safe := "envoy_" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, name)
		fmt.Fprintf(w, "# TYPE %s gauge\n%s %d\n", safe, safe, values[name])
	}
}
