package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// configTree reads the document of a configuration file node by node: the errors of the YAML
// decoder name Go types and do not say what would be valid.
type configTree struct {
	path    string
	noRules string  // what to do to have no rules
	wrong   []error // each with its line
}

func (t *configTree) addf(n *yaml.Node, format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Errorf("%s:%d: %s", t.path, n.Line, fmt.Sprintf(format, args...)))
}

// A setting is the value of a flag.
type setting struct {
	yaml.Node
	line int // of its key
}

// A shape reports whether a key accepts a value, and describes valid values.
type shape func(n *yaml.Node) (right string, ok bool)

var (
	ruleKeys = map[string]shape{
		"who":   listLike("[ci]"),
		"may":   listLike("[look, lock]"),
		"paths": listLike("[mydatabase]"),
	}
	quotaKeys = map[string]shape{
		"who":            listLike(`["*"]`),
		"claims":         isCount,
		"waiting":        isCount,
		"sessions":       isCount,
		"paths":          isCount,
		"session_claims": isCount,
		"longest_ttl":    isSpan, "highest_priority": isCount,
	}
)

// read parses a document; an empty one sets nothing.
func (t *configTree) read(document *yaml.Node) (*configFile, error) {
	c := &configFile{Settings: map[string]setting{}}
	if len(document.Content) == 0 {
		return c, nil
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return c, nil
	}
	t.keys(root, "a configuration is keys with values, such as: listen: 127.0.0.1:7420", func(key, value *yaml.Node) {
		switch key.Value {
		case "rules":
			t.list(key, value, "a rule", ruleKeys, &c.Rules)
		case "quotas":
			t.list(key, value, "a quota", quotaKeys, &c.Quotas)
		default:
			c.Settings[key.Value] = setting{*value, key.Line}
		}
	})
	if len(t.wrong) > 0 {
		return nil, errors.Join(t.wrong...)
	}
	return c, nil
}

// keys calls each for every key of a mapping, and records duplicate keys as errors.
func (t *configTree) keys(n *yaml.Node, right string, each func(key, value *yaml.Node)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		t.addf(n, "%s", right)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if before, twice := seen[key.Value]; twice {
			t.addf(key, "%s is there twice, also in line %d", key.Value, before)
			continue
		}
		seen[key.Value] = key.Line
		each(key, value)
	}
}

// list reads rules or quotas into a slice of them.
func (t *configTree) list(key, n *yaml.Node, what string, shapes map[string]shape, into any) {
	known := slices.Sorted(func(yield func(string) bool) {
		for name := range shapes {
			if !yield(name) {
				return
			}
		}
	})
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		// An empty list may be meant as "nobody may do anything", and must not mean the opposite.
		instead := "leave the key out"
		if key.Value == "rules" {
			instead = t.noRules
		}
		t.addf(key, "%s is empty: name one at least, or %s", key.Value, instead)
		return
	}
	if n.Kind != yaml.SequenceNode {
		t.addf(key, "%s takes a list: a line for each that begins with -, such as: - who: [ci]", key.Value)
		return
	}
	before := len(t.wrong)
	for _, entry := range n.Content {
		t.keys(entry, fmt.Sprintf("%s has keys: %s", what, strings.Join(known, ", ")), func(key, value *yaml.Node) {
			fits, there := shapes[key.Value]
			if !there {
				t.addf(key, "unknown key %q: %s has %s", key.Value, what, strings.Join(known, ", "))
				return
			}
			if right, ok := fits(value); !ok {
				t.addf(key, "%s takes %s", key.Value, strings.ReplaceAll(right, "KEY", key.Value))
			}
		})
	}
	if len(t.wrong) > before {
		return
	}
	if err := n.Decode(into); err != nil {
		t.addf(key, "%s", inOneLine(err))
	}
}

// listLike returns the shape of a list of words; example is a valid one.
func listLike(example string) shape {
	return func(n *yaml.Node) (string, bool) {
		right := "a list: KEY: " + example
		if isWord(n) {
			return "a list: KEY: [" + quoted(n) + "]", false
		}
		return right, n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(entry *yaml.Node) bool {
			if entry.Kind == yaml.AliasNode {
				entry = entry.Alias
			}
			return !isWord(entry)
		})
	}
}

// isWord reports whether a value is a scalar other than null.
func isWord(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }

// quoted returns a word as YAML writes it in a list.
func quoted(n *yaml.Node) string {
	if strings.ContainsAny(n.Value, `*&!{}[],#:"'| `) {
		return strconv.Quote(n.Value)
	}
	return n.Value
}

func isCount(n *yaml.Node) (string, bool) {
	var count int
	return "a whole number: KEY: 100", isWord(n) && n.Decode(&count) == nil
}

func isSpan(n *yaml.Node) (string, bool) {
	_, err := duration.Parse(n.Value)
	return "a duration, such as 90s, 5m or 2w3d", isWord(n) && err == nil
}
