// Command opa measures Open Policy Agent's SDK on a bundle that Tollgate loads, and
// prints each result as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
	"tollgate.example/benches/measure"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "opa: %v\n", err)
		os.Exit(1)
	}
}

// run times a prepared query of the OPA SDK over the same Rego and input.
func run(arguments []string) error {
	flags := flag.NewFlagSet("opa", flag.ExitOnError)
	bundle := flags.String("bundle", "", "folder with .rego files")
	input := flags.String("input", "", "file with the input, JSON")
	query := flags.String("query", "data.tollgate.extensions.decision", "what to ask")
	name := flags.String("name", "rego/extensions", "name of the question in the output")
	budget := flags.Duration("time", 2*time.Second, "time for the question")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx := context.Background()
	prepared, err := prepare(ctx, *bundle, *query)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*input)
	if err != nil {
		return err
	}
	return evaluate(ctx, prepared, text, *name, *budget)
}

// prepare compiles the bundle's modules, except tests, with its data.
func prepare(ctx context.Context, bundle, query string) (rego.PreparedEvalQuery, error) {
	documents, err := data(bundle)
	if err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	options := []func(*rego.Rego){rego.Query(query), rego.Store(inmem.NewFromObject(documents))}
	files, err := filepath.Glob(filepath.Join(bundle, "*.rego"))
	if err != nil {
		return rego.PreparedEvalQuery{}, err
	}
	if len(files) == 0 {
		return rego.PreparedEvalQuery{}, fmt.Errorf("%s: no .rego file", bundle)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return rego.PreparedEvalQuery{}, err
		}
		options = append(options, rego.Module(file, string(text)))
	}
	return rego.New(options...).PrepareForEval(ctx)
}

// data reads `data/NAME.yaml` and `data/NAME.json` of the bundle as `data.NAME`, as
// Tollgate does.
func data(bundle string) (map[string]any, error) {
	documents := map[string]any{}
	files, err := filepath.Glob(filepath.Join(bundle, "data", "*.*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var document any
		if err := util.Unmarshal(text, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		documents[strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))] = document
	}
	return documents, nil
}

// evaluate times two forms of the input: values of OPA, and decoded JSON, which
// callers of the SDK usually have.
func evaluate(ctx context.Context, prepared rego.PreparedEvalQuery, text []byte, name string, budget time.Duration) error {
	var decoded any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	parsed, err := ast.InterfaceToValue(decoded)
	if err != nil {
		return err
	}
	for _, run := range []struct {
		name string
		way  rego.EvalOption
	}{{name, rego.EvalParsedInput(parsed)}, {name + "/decoded-json", rego.EvalInput(decoded)}} {
		measured, err := measure.Once(run.name, budget, func() error {
			answers, err := prepared.Eval(ctx, run.way)
			if err != nil {
				return err
			}
			return allowed(answers)
		})
		if err != nil {
			return err
		}
		if err := measure.Emit(measured); err != nil {
			return err
		}
	}
	return nil
}

// allowed returns an error unless the decision is to allow.
func allowed(answers rego.ResultSet) error {
	if len(answers) == 1 && len(answers[0].Expressions) == 1 {
		if decision, ok := answers[0].Expressions[0].Value.(map[string]any); ok && decision["allow"] == true {
			return nil
		}
	}
	return fmt.Errorf("the policy did not allow the input: %v", answers)
}
