package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// phrase is wording that a reader of Kubernetes' documentation does not expect, and what to write instead.
type phrase struct {
	// pattern matches it in lower case, as whole words. A space in it also matches the end of a line.
	pattern, instead string
	// unless matches, from the phrase on, what makes it standard English.
	unless string
}

// phrases are not allowed in comments, strings, identifiers, pages and scripts.
func phrases() []phrase {
	return []phrase{
		{pattern: `(?:nobody|somebody)`, instead: "who or what it is"},
		{pattern: `(?:tell|tells|told|telling)`, instead: "report, show, log"},
		{pattern: `(?:say|says|said|saying) whether`, instead: "reports whether"},
		{pattern: `(?:there )?is no [a-z]+`, instead: "is not a", unless: `^(?:there|is no longer)`},
		{pattern: `anew`, instead: "again"},
		{pattern: `(?:stand|stands|standing|stood)`, instead: "exist, be on standby", unless: `^[a-z]+(?:[-.]ins?|[ .]by|[ .]down| for)\b`},
		{pattern: `(?:mend|mends|mended|mending)`, instead: "fix, correct"},
		{pattern: `may (?:not|no longer)`, instead: "is not allowed to, cannot, might not"},
		{pattern: `who leads`, instead: "the leader"},
		{pattern: `what is asked for`, instead: "what is requested"},
		{pattern: `goes before`, instead: "has precedence over"},
		{pattern: `from time to time`, instead: "how often"},
		{pattern: `lets? nothing`, instead: "allows no, blocks, is on hold"},
		{pattern: `as (?:it|they) should`, instead: "as planned, as expected"},
		{pattern: `clear(?:s|ed|ing)? away`, instead: "delete, uninstall"},
		{pattern: `puts? (?:it|them) right`, instead: "restore, correct"},
		{pattern: `rivals?`, instead: "conflicting controller"},
		{pattern: `ailments?`, instead: "problem"},
		{pattern: `garbled`, instead: "invalid"},
		{pattern: `weakened`, instead: "insecure"},
		{pattern: `(?:mint|mints|minted|minting)`, instead: "create, request"},
		{pattern: `tenure`, instead: "ownership"},
	}
}

// renamed has former names of the code and of condition reasons, and what replaced them.
func renamed() map[string]string {
	return map[string]string{
		"Addressee": "StatusTarget", "Disclaim": "Release", "Garbled": "InvalidAnnotation", "HandsOff": "Undetermined",
		"HeldByAnother": "OwnedByAnother", "MintCredential": "RequestToken", "NotPublished": "EndpointPending",
		"NotReached": "EndpointUnreachable", "OtherIstiod": "ForeignIstiod", "PlanRefused": "PlanRejected",
		"UndoneAgain": "WriteConflict", "tellControlPlanes": "reportToControlPlanes",
	}
}

// use is a phrase, in lower case, in a file.
type use struct{ file, words string }

// allowance is how often a phrase is allowed, and why.
type allowance struct {
	times  int
	reason string
}

// allowed are the only uses of phrases and former names.
func allowed() map[use]allowance {
	const before = "names what the change replaced"
	const table = "the column of words that are not used"
	return map[use]allowance{
		{"CHANGELOG.md", "nobody"}:          {1, before},
		{"CHANGELOG.md", "handsoff"}:        {1, before},
		{"CHANGELOG.md", "heldbyanother"}:   {1, before},
		{"CHANGELOG.md", "notreached"}:      {1, before},
		{"CHANGELOG.md", "notpublished"}:    {1, before},
		{"CHANGELOG.md", "planrefused"}:     {1, before},
		{"CHANGELOG.md", "undoneagain"}:     {1, before},
		{"docs/development.md", "rival"}:    {2, table},
		{"docs/development.md", "weakened"}: {1, table},
	}
}

// TestTheVocabularyIsPlain checks comments, strings, identifiers, pages and scripts. The tables above are excepted.
func TestTheVocabularyIsPlain(t *testing.T) {
	vocabulary, found, files := newVocabulary(), map[use]int{}, 0
	for _, path := range texts(t) {
		files++
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range prose(t, path) {
			for _, hit := range vocabulary.find(p.text) {
				u := use{filepath.ToSlash(name), strings.ToLower(hit.words)}
				if found[u]++; found[u] > allowed()[u].times {
					t.Errorf("%s:%d: %q: write %s", name, p.line+hit.line, hit.words, hit.instead)
				}
			}
		}
	}
	for u, a := range allowed() {
		if found[u] < a.times || a.reason == "" {
			t.Errorf("%s has %q %d times, and %d times are allowed", u.file, u.words, found[u], a.times)
		}
	}
	if files < 800 {
		t.Errorf("only %d files were found", files)
	}
}

// TestPhrasesAreFound checks that phrases are found, also over the end of a line, and standard English is not.
func TestPhrasesAreFound(t *testing.T) {
	vocabulary := newVocabulary()
	for text, want := range map[string]string{
		"It is changed by Nobody.":            "Nobody",
		"which is no\ncertificate":            "is no\ncertificate",
		"a file is no directory":              "is no directory",
		"There is no room, it is no longer":   "",
		"it may\n\tnot patch":                 "may\n\tnot",
		"the verdict HandsOff, told":          "HandsOff, told",
		"a stand-in stands for it, or stands": "stands",
		"the ingress operator stands down":    "",
	} {
		var got []string
		for _, hit := range vocabulary.find(text) {
			got = append(got, hit.words)
		}
		if slices.Sort(got); strings.Join(got, ", ") != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
	if got := identifierWords("nobodyReadsANewCRD_told"); got != "nobody.Reads.A.New.CRD.told" {
		t.Errorf("an identifier has the words %q", got)
	}
}

// vocabulary finds phrases and former names.
type vocabulary struct {
	rows    []phrase
	phrases *regexp.Regexp // a group for each row
	unless  []*regexp.Regexp
	names   *regexp.Regexp
}

func newVocabulary() vocabulary {
	v := vocabulary{rows: phrases()}
	var groups []string
	for _, row := range v.rows {
		groups = append(groups, "("+strings.ReplaceAll(row.pattern, " ", `\s+`)+")")
		var unless *regexp.Regexp
		if row.unless != "" {
			unless = regexp.MustCompile(strings.ReplaceAll(row.unless, " ", `\s+`))
		}
		v.unless = append(v.unless, unless)
	}
	v.phrases = regexp.MustCompile(`\b(?:` + strings.Join(groups, "|") + `)\b`)
	v.names = regexp.MustCompile(`\b(?:` + strings.Join(slices.Sorted(maps.Keys(renamed())), "|") + `)\b`)
	return v
}

// hit is what was found, and the number of lines before it.
type hit struct {
	words, instead string
	line           int
}

func (v vocabulary) find(text string) []hit {
	var out []hit
	// In lower case, ASCII letters keep their places. Others only move the number of a line.
	lower := strings.ToLower(text)
	for _, at := range v.phrases.FindAllStringSubmatchIndex(lower, -1) {
		begin, end := at[0], at[1]
		row := slices.IndexFunc(at[2:], func(i int) bool { return i >= 0 }) / 2
		if u := v.unless[row]; u != nil && u.MatchString(lower[begin:]) {
			continue
		}
		out = append(out, hit{text[begin:end], v.rows[row].instead, strings.Count(text[:begin], "\n")})
	}
	for _, at := range v.names.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		out = append(out, hit{name, renamed()[name], strings.Count(text[:at[0]], "\n")})
	}
	return out
}

// texts returns the files whose words are checked.
func texts(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (strings.HasPrefix(name, ".") && path != root || slices.Contains([]string{"testdata", "bin"}, name)) {
			return filepath.SkipDir
		}
		isText := slices.Contains([]string{".go", ".md", ".sh"}, filepath.Ext(name)) || name == "Makefile"
		if isText && name != "vocabulary_test.go" {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// passage is a text of a file, and the line on which it begins.
type passage struct {
	text string
	line int
}

// prose returns the texts of a file. Of Go, these are comments and strings, each over all of its lines, and names.
func prose(t *testing.T, path string) []passage {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(path) != ".go" {
		return []passage{{string(data), 1}}
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(path, -1, len(data))
	s.Init(file, data, func(position token.Position, msg string) { t.Errorf("%s: %s", position, msg) }, scanner.ScanComments)
	var out []passage
	seen := map[string]bool{}
	for previous := token.EOF; ; {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch tok { //nolint:exhaustive // the other tokens have no text
		case token.EOF:
			return out
		case token.ADD:
			continue // a string that continues
		case token.SEMICOLON:
			if lit == "\n" {
				continue
			}
		case token.COMMENT, token.STRING:
			lit = plain(tok, lit)
			if last := len(out) - 1; previous == tok {
				gap := line - out[last].line - strings.Count(out[last].text, "\n")
				if gap == 0 || gap == 1 {
					out[last].text += strings.Repeat("\n", gap) + lit
					continue
				}
			}
			out = append(out, passage{lit, line})
		case token.IDENT:
			if !seen[lit] {
				out = append(out, passage{identifierWords(lit), line})
				if _, is := renamed()[lit]; is {
					out = append(out, passage{lit, line})
				}
				seen[lit] = true
			}
		}
		previous = tok
	}
}

// plain returns a comment or a string without what marks it as one.
func plain(tok token.Token, literal string) string {
	if tok == token.COMMENT {
		return strings.TrimPrefix(literal, "//")
	}
	return strings.NewReplacer(`\n`, "  ", `\t`, "  ").Replace(literal[1 : len(literal)-1])
}

// identifierWords returns the words of an identifier, with dots between them: a phrase of several words, as in
// http.NoBody or meta.IsNoMatchError, is not found. A word begins with a capital letter that follows a small one.
func identifierWords(name string) string {
	var out strings.Builder
	previous := ' '
	for _, r := range name {
		if r == '_' {
			r = '.'
		}
		if unicode.IsUpper(r) && (unicode.IsLower(previous) || strings.HasSuffix(out.String(), ".A")) {
			out.WriteRune('.')
		}
		out.WriteRune(r)
		previous = r
	}
	return out.String()
}
