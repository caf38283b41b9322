// Program metrics reads alert rules and a Grafana dashboard with Prometheus' own parser, for
// tests/kubernetes/deployment/metrics.rs:
//
//	metrics rules.yaml dashboard.json
//
// It prints the mistakes, and which metrics with which labels each expression uses, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// Selector is one use of a metric in an expression.
type Selector struct {
	// Place is the alert, or the panel and its target.
	Place string `json:"place"`
	// Metric is its name, "" if the expression selects by labels alone.
	Metric string `json:"metric"`
	// Labels are those of its matchers, and those that the expressions around it group or match by.
	Labels []string `json:"labels"`
}

// Result is what the program prints.
type Result struct {
	Mistakes  []string   `json:"mistakes"`
	Selectors []Selector `json:"selectors"`
	// Expressions counts what was parsed.
	Expressions int `json:"expressions"`
}

var promql = parser.NewParser(parser.Options{})

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: metrics rules.yaml dashboard.json")
		os.Exit(2)
	}
	result := Result{Mistakes: []string{}, Selectors: []Selector{}}
	for index, read := range []func([]byte) error{result.rules, result.dashboard} {
		path := os.Args[index+1]
		text, err := os.ReadFile(path)
		if err == nil {
			err = read(text)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rules reads a file of rules as Prometheus does, with the templates of its annotations.
func (result *Result) rules(text []byte) error {
	groups, mistakes := rulefmt.Parse(text, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, mistake := range mistakes {
		result.Mistakes = append(result.Mistakes, mistake.Error())
	}
	if groups == nil {
		return nil
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			result.expression(rule.Alert+rule.Record, rule.Expr)
		}
	}
	return nil
}

type dashboard struct {
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	Title   string  `json:"title"`
	Panels  []panel `json:"panels"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// dashboard reads every target of every panel, and the queries of its variables.
func (result *Result) dashboard(text []byte) error {
	var read dashboard
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	for _, variable := range read.Templating.List {
		if variable.Type == "query" {
			result.variable("variable "+variable.Name, variable.Query)
		}
	}
	result.panels(read.Panels)
	return nil
}

func (result *Result) panels(panels []panel) {
	for _, panel := range panels {
		for _, target := range panel.Targets {
			result.expression(fmt.Sprintf("panel %q, %s", panel.Title, target.RefID), replaceVariables(target.Expr))
		}
		result.panels(panel.Panels)
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+),\s*([a-zA-Z_][a-zA-Z0-9_]*)\)$`)

// variable reads a query such as `label_values(up{job="a"}, namespace)`.
func (result *Result) variable(place string, query json.RawMessage) {
	var long struct {
		Query string `json:"query"`
	}
	if err := json.Unmarshal(query, &long); err != nil {
		_ = json.Unmarshal(query, &long.Query)
	}
	match := labelValues.FindStringSubmatch(strings.TrimSpace(long.Query))
	if match == nil {
		result.Mistakes = append(result.Mistakes, fmt.Sprintf("%s: `%s` is not label_values(SELECTOR, LABEL)", place, long.Query))
		return
	}
	before := len(result.Selectors)
	result.expression(place, replaceVariables(match[1]))
	for index := before; index < len(result.Selectors); index++ {
		result.Selectors[index].Labels = append(result.Selectors[index].Labels, match[2])
	}
}

var duration = regexp.MustCompile(`\$(__rate_interval|__interval|__range)\b`)

// replaceVariables puts durations in place of Grafana's. Its other variables stand in strings.
func replaceVariables(expression string) string {
	return duration.ReplaceAllString(expression, "5m")
}

func (result *Result) expression(place, text string) {
	result.Expressions++
	expression, err := promql.ParseExpr(text)
	if err != nil {
		result.Mistakes = append(result.Mistakes, fmt.Sprintf("%s: %v", place, err))
		return
	}
	parser.Inspect(expression, func(node parser.Node, above []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		used := Selector{Place: place, Metric: selector.Name, Labels: []string{}}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName {
				used.Labels = append(used.Labels, matcher.Name)
			}
		}
		for _, outer := range above {
			switch outer := outer.(type) {
			case *parser.AggregateExpr:
				used.Labels = append(used.Labels, outer.Grouping...)
			case *parser.BinaryExpr:
				if outer.VectorMatching != nil {
					used.Labels = append(used.Labels, outer.VectorMatching.MatchingLabels...)
				}
			}
		}
		slices.Sort(used.Labels)
		used.Labels = slices.Compact(used.Labels)
		result.Selectors = append(result.Selectors, used)
		return nil
	})
}
