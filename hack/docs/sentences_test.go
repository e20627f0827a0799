package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// longestSentence is the longest sentence of a page, in words. Inline code is one word.
const longestSentence = 25

var (
	fence    = regexp.MustCompile("^\\s*```")
	listItem = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	// sentenceEnd ends a sentence. A semicolon ends a part of a list in a cell.
	sentenceEnd = regexp.MustCompile(`[.!?]["”)*]*\s|<br>`)
	cellEnd     = regexp.MustCompile(`[.!?]["”)*]*\s|<br>|; `)
)

// TestSentencesAreShort checks the documentation, except for code blocks, with the output that they show.
func TestSentencesAreShort(t *testing.T) {
	sentences := 0
	for _, page := range pages(t) {
		for _, p := range paragraphs(read(t, page)) {
			for _, sentence := range sentencesOf(p.text) {
				sentences++
				if n := wordCount(sentence); n > longestSentence {
					t.Errorf("%s:%d: the sentence has %d words, more than %d: %s", page, p.line, n, longestSentence, sentence)
				}
			}
		}
	}
	if sentences < 2000 {
		t.Errorf("only %d sentences were found", sentences)
	}
}

// TestSentencesAreFound checks how a page is divided.
func TestSentencesAreFound(t *testing.T) {
	const page = "# A title. Of two\nOne, with [a\nlink](x.md). `Code. With a stop` is two (I know.) Three\n\n" +
		"- an item\n  of a list\n- the next\n\n| a cell; one more | `a\\|b`.<br>c |\n|---|---|\n```\nno. prose\n```\nThe end."
	var got []string
	for _, p := range paragraphs(page) {
		for _, s := range sentencesOf(p.text) {
			if wordCount(s) > 0 {
				got = append(got, strings.TrimSpace(s))
			}
		}
	}
	want := []string{
		"One, with a link.", "X is two (I know.)", "Three", "an item of a list", "the next", "a cell;", "one more", "X.<br>", "c",
		"The end.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the sentences are %q, want %q", got, want)
	}
	if n := wordCount("one – two X, 3 ... |"); n != 4 {
		t.Errorf("%d words, want 4", n)
	}
}

// paragraphs returns the paragraphs, items of lists and cells of tables of a page, without headings and code blocks.
func paragraphs(page string) []passage {
	var out []passage
	isCode, isOpen := false, false
	for i, line := range strings.Split(page, "\n") {
		isTable := strings.HasPrefix(strings.TrimSpace(line), "|")
		switch {
		case fence.MatchString(line):
			isCode, isOpen = !isCode, false
		case isCode, strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"):
			isOpen = false
		case isTable:
			isOpen = false
			for cell := range strings.SplitSeq(line, " | ") {
				out = append(out, passage{"| " + strings.Trim(cell, "| "), i + 1})
			}
		case listItem.MatchString(line):
			out, isOpen = append(out, passage{listItem.ReplaceAllString(line, ""), i + 1}), true
		case isOpen:
			out[len(out)-1].text += " " + strings.TrimSpace(line)
		default:
			out, isOpen = append(out, passage{strings.TrimSpace(line), i + 1}), true
		}
	}
	return out
}

// sentencesOf divides a paragraph or a cell.
func sentencesOf(paragraph string) []string {
	text := linked.ReplaceAllString(paragraph, "$1")
	text = quoted.ReplaceAllString(text, "X")
	end := sentenceEnd
	if cell, is := strings.CutPrefix(text, "| "); is {
		text, end = cell, cellEnd
	}
	var out []string
	for at := end.FindStringIndex(text); at != nil; at = end.FindStringIndex(text) {
		out, text = append(out, text[:at[1]]), text[at[1]:]
	}
	return append(out, text)
}

// wordCount counts what has a letter or a digit.
func wordCount(sentence string) int {
	isWord := func(word string) bool {
		return strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
	n := 0
	for word := range strings.FieldsSeq(sentence) {
		if isWord(word) {
			n++
		}
	}
	return n
}
