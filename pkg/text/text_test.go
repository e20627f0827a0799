package text_test

import (
	"strconv"
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

// TestTextsCannotHideOrReorderOthers checks characters that are printable and that change how a terminal shows the text
// around them: letters and digits of right-to-left scripts, marks, blanks, and brackets that look like square ones.
func TestTextsCannotHideOrReorderOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, line, plain string }{
		"Hebrew":                  {"a\u05d0b", "a b", "a b"},
		"Arabic":                  {"a\u0627b", "a b", "a b"},
		"Arabic digit":            {"a\u0661b", "a b", "a b"},
		"Arabic ligature":         {"a\ufdfab", "a b", "a b"},
		"Syriac":                  {"a\u0710b", "a b", "a b"},
		"N'Ko":                    {"a\u07cab", "a b", "a b"},
		"Adlam":                   {"a\U0001e900b", "a b", "a b"},
		"Cypriot":                 {"a\U00010800b", "a b", "a b"},
		"combining acute":         {"a\u0301b", "a b", "a b"},
		"long overlay":            {"a\u0336b", "a b", "a b"},
		"enclosing square":        {"a\u20deb", "a b", "a b"},
		"grapheme joiner":         {"a\u034fb", "a b", "a b"},
		"variation selector":      {"a\ufe0fb", "a b", "a b"},
		"tag":                     {"a\U000e0041b", "a b", "a b"},
		"Hangul filler":           {"a\u3164b", "a b", "a b"},
		"Hangul choseong filler":  {"a\u115fb", "a b", "a b"},
		"Hangul jungseong filler": {"a\u1160b", "a b", "a b"},
		"halfwidth Hangul filler": {"a\uffa0b", "a b", "a b"},
		"Braille blank":           {"a\u2800b", "a b", "a b"},
		"null note head":          {"a\U0001d159b", "a b", "a b"},
		"ideographic space":       {"a\u3000b", "a b", "a b"},
		"fullwidth":               {"\uff3bx\uff3d", "\uff3bx\uff3d", "(x)"},
		"lenticular":              {"\u3010x\u3011", "\u3010x\u3011", "(x)"},
		"tortoise shell":          {"\u3014x\u3015", "\u3014x\u3015", "(x)"},
		"white square":            {"\u27e6x\u27e7", "\u27e6x\u27e7", "(x)"},
		"with quill":              {"\u2045x\u2046", "\u2045x\u2046", "(x)"},
		"with underbar":           {"\u298bx\u298c", "\u298bx\u298c", "(x)"},
		"pieces":                  {"\u23a1x\u23a6", "\u23a1x\u23a6", "(x)"},
		"ceiling and floor":       {"\u2308x\u230b", "\u2308x\u230b", "(x)"},
		"halfwidth corner":        {"\uff62x\uff63", "\uff62x\uff63", "(x)"},
		"braces, parentheses":     {"{x} (y)", "{x} (y)", "{x} (y)"},
		"other scripts":           {"Größe „x“ δοκιμή тест 日本 한글", "Größe „x“ δοκιμή тест 日本 한글", "Größe „x“ δοκιμή тест 日本 한글"},
	} {
		want := []string{tc.line, tc.plain, strconv.Quote(tc.plain), tc.line}
		got := []string{text.Line(tc.in, 100), text.Plain(tc.in, 100), text.Quoted(tc.in, 100), text.Lines(tc.in)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
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
		"\u05d0\u0661\u034f\u3164\uff3bx\uff3d",
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
			bad := func(r rune) bool { return hides(r) && (name != "Lines" || r != '\n') }
			if !utf8.ValidString(out) || strings.ContainsFunc(out, bad) {
				t.Errorf("%s(%q) is %q", name, in, out)
			}
			if (name == "Plain" || name == "Quoted") && strings.ContainsAny(out, "[]\uff3b\uff3d\u3010\u3011\u3014\u3015") {
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

// hides reports whether a character is unprintable, a mark, or of one of the scripts that are written from right to
// left and that most readers know.
func hides(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana) &&
		(unicode.IsLetter(r) || unicode.IsMark(r))
}
