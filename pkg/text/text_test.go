package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/text"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct{ line, plain, quoted string }{
		"":                          {"", "", `""`},
		"spec.rules[].host":         {"spec.rules[].host", "spec.rules().host", `"spec.rules().host"`},
		"a\nb\x1b[31mc\u202ed":      {"a b [31mc d", "a b (31mc d", `"a b (31mc d"`},
		`he "said" so\`:             {`he "said" so\`, `he "said" so\`, `"he 'said' so\\"`},
		"\xff\xfe":                  {"\ufffd\ufffd", "\ufffd\ufffd", "\"\ufffd\ufffd\""},
		"zero\u200bwidth\u2028line": {"zero width line", "zero width line", `"zero width line"`},
		"é, 日本":                     {"é, 日本", "é, 日本", `"é, 日本"`},
	} {
		got := []string{text.Line(in, 100), text.Plain(in, 100), text.Quoted(in, 100)}
		if diff := cmp.Diff([]string{want.line, want.plain, want.quoted}, got); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
}

func TestLinesStayLines(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff("a\nb c d\n", text.Lines("a\nb\rc\td\n")); diff != "" {
		t.Error(diff)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		most int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc..."}, {"日本日本", 7, "日..."}, {"日本", 2, ".."}, {"abc", 0, ""},
	} {
		if got := text.Cut(tc.in, tc.most); got != tc.want {
			t.Errorf("%q in %d bytes is %q, want %q", tc.in, tc.most, got, tc.want)
		}
	}
}

// TestTheCostIsBoundedByTheResult checks that a long text is cut before it is copied.
func TestTheCostIsBoundedByTheResult(t *testing.T) {
	long := strings.Repeat("\x00[", 8<<20)
	for name, f := range map[string]func(string, int) string{"Line": text.Line, "Plain": text.Plain, "Quoted": text.Quoted} {
		result := testing.Benchmark(func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			for range b.N {
				_ = f(long, 100)
			}
		})
		if got := result.AllocedBytesPerOp(); got > 4<<10 {
			t.Errorf("%s of 16 MiB to 100 bytes allocates %d bytes", name, got)
		}
	}
}

// FuzzText checks that the output is short, valid and printable for any input. It also checks that Plain and Quoted
// return no square brackets.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"", "a[b]c", "\u202e\u2066\x1b]0;x\x07", "\xff\xf0\x9f", "\"\\\n\r\t", "\U000e0041",
		strings.Repeat("é", 60),
	} {
		f.Add(seed, 40)
	}
	f.Fuzz(func(t *testing.T, in string, most int) {
		if most < 0 || most > 1<<16 {
			t.Skip()
		}
		plain := text.Plain(in, most)
		for name, out := range map[string]string{
			"Line": text.Line(in, most), "Plain": plain, "Quoted": text.Quoted(in, most), "Lines": text.Lines(in),
		} {
			bad := func(r rune) bool { return !unicode.IsPrint(r) && (name != "Lines" || r != '\n') }
			if !utf8.ValidString(out) || strings.ContainsFunc(out, bad) {
				t.Errorf("%s(%q) is %q", name, in, out)
			}
			if (name == "Plain" || name == "Quoted") && strings.ContainsAny(out, "[]") {
				t.Errorf("%s(%q) has brackets: %q", name, in, out)
			}
			if (name == "Line" || name == "Plain") && len(out) > most {
				t.Errorf("%s(%q) has %d bytes, want at most %d", name, in, len(out), most)
			}
		}
		if quoted := text.Quoted(in, most); len(quoted) > 2*len(plain)+2 || strings.Count(quoted, `"`) != 2 {
			t.Errorf("%q is quoted as %s", in, quoted)
		}
	})
}
