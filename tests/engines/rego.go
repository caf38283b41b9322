package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/util"
)

// regoTime bounds one evaluation.
const regoTime = 5 * time.Second

// regoQuestion is a policy, and the inputs to evaluate it on.
type regoQuestion struct {
	// Texts of modules, by file name.
	Modules map[string]string `json:"modules"`
	Data    json.RawMessage   `json:"data"`
	// Such as `data.tollgate.extensions.decision`.
	Query string `json:"query"`
	// Without inputs, `input` is undefined, once.
	Inputs []json.RawMessage `json:"inputs"`
}

// regoAnswer has a result for each input, from each way to treat errors of functions.
type regoAnswer struct {
	Strict  []regoResult `json:"strict"`
	Default []regoResult `json:"default"`
}

// regoResult is a value, undefined, or an error.
type regoResult struct {
	Value     any    `json:"value,omitempty"`
	Undefined bool   `json:"undefined,omitempty"`
	Error     string `json:"error,omitempty"`
	// Code of the error, such as `eval_conflict_error`.
	Code string `json:"code,omitempty"`
}

// evaluateRego returns an error if the policy does not compile.
func evaluateRego(asked regoQuestion) (any, error) {
	data := map[string]any{}
	if len(asked.Data) > 0 {
		if err := util.UnmarshalJSON(asked.Data, &data); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	inputs := []rego.EvalOption{}
	for _, text := range asked.Inputs {
		var input any
		if err := util.UnmarshalJSON(text, &input); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		term, err := ast.InterfaceToValue(input)
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		inputs = append(inputs, rego.EvalParsedInput(term))
	}
	compiler, err := ast.CompileModules(asked.Modules)
	if err != nil {
		return nil, err
	}
	store := inmem.NewFromObject(data)
	var results regoAnswer
	for _, way := range []struct {
		strict bool
		into   *[]regoResult
	}{{true, &results.Strict}, {false, &results.Default}} {
		prepared, err := rego.New(
			rego.Query(asked.Query), rego.Compiler(compiler), rego.Store(store),
			rego.StrictBuiltinErrors(way.strict), rego.GenerateJSON(encodeTerm),
		).PrepareForEval(context.Background())
		if err != nil {
			return nil, err
		}
		if len(inputs) == 0 {
			*way.into = append(*way.into, evaluateOnce(prepared))
		}
		for _, input := range inputs {
			*way.into = append(*way.into, evaluateOnce(prepared, input))
		}
	}
	return results, nil
}

func evaluateOnce(prepared rego.PreparedEvalQuery, options ...rego.EvalOption) regoResult {
	ctx, cancel := context.WithTimeout(context.Background(), regoTime)
	defer cancel()
	results, err := prepared.Eval(ctx, options...)
	if err != nil {
		var failed *topdown.Error
		code := ""
		if errors.As(err, &failed) {
			code = failed.Code
		}
		return regoResult{Error: err.Error(), Code: code}
	}
	if len(results) == 0 {
		return regoResult{Undefined: true}
	}
	return regoResult{Value: results[0].Expressions[0].Value}
}

// encodeTerm converts a value to JSON in which no two values look alike: a set is
// `{"set": […]}`, and an object `{"object": [[key, value], …]}`, both in OPA's order.
// A number is `{"number": "…"}`.
func encodeTerm(term *ast.Term, _ *rego.EvalContext) (any, error) {
	return encodeValue(term.Value)
}

func encodeValue(value ast.Value) (any, error) {
	switch value := value.(type) {
	case ast.Null:
		return nullValue{}, nil
	case ast.Boolean:
		return bool(value), nil
	case ast.String:
		return string(value), nil
	case ast.Number:
		return map[string]string{"number": string(value)}, nil
	case *ast.Array:
		items := []any{}
		for at := range value.Len() {
			item, err := encodeValue(value.Elem(at).Value)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return items, nil
	case ast.Set:
		items := []any{}
		for _, term := range value.Slice() {
			item, err := encodeValue(term.Value)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return map[string]any{"set": items}, nil
	case ast.Object:
		entries := [][2]any{}
		for _, term := range value.Keys() {
			key, err := encodeValue(term.Value)
			if err != nil {
				return nil, err
			}
			item, err := encodeValue(value.Get(term).Value)
			if err != nil {
				return nil, err
			}
			entries = append(entries, [2]any{key, item})
		}
		return map[string]any{"object": entries}, nil
	default:
		return nil, fmt.Errorf("a result has a value of type %T", value)
	}
}

// nullValue is `null`, which is not left out as a missing value is.
type nullValue struct{}

func (nullValue) MarshalJSON() ([]byte, error) {
	return []byte("null"), nil
}
