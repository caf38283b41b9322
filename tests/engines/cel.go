package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// celTime bounds one evaluation.
const celTime = 5 * time.Second

// celQuestion is an expression, and the values of its variables to evaluate it on.
type celQuestion struct {
	Expression string `json:"expression"`
	// Names of the variables, of type `dyn`.
	Variables []string `json:"variables"`
	// By name of a variable.
	Inputs []map[string]json.RawMessage `json:"inputs"`
}

type celAnswer struct {
	// Why the type checker refuses the expression. The results are then those of the
	// expression as it was parsed.
	Unchecked string      `json:"unchecked,omitempty"`
	Results   []celResult `json:"results"`
}

// celResult is the text of a boolean, another type's name, or an error.
type celResult struct {
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

// evaluateCEL returns an error if the expression cannot be parsed.
func evaluateCEL(asked celQuestion) (any, error) {
	options := []cel.EnvOption{cel.OptionalTypes(), ext.Strings()}
	for _, name := range asked.Variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(asked.Expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	given := celAnswer{Results: []celResult{}}
	ast := parsed
	if checked, issues := env.Check(parsed); issues.Err() != nil {
		given.Unchecked = issues.Err().Error()
	} else {
		ast = checked
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, err
	}
	for _, input := range asked.Inputs {
		values := map[string]any{}
		for name, text := range input {
			value, err := decodeJSON(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = value
		}
		given.Results = append(given.Results, evaluateCELOnce(program, values))
	}
	return given, nil
}

// evaluateCELOnce turns a panic into an error, as a type error of an unchecked expression
// may be one.
func evaluateCELOnce(program cel.Program, values map[string]any) (result celResult) {
	defer func() {
		if reason := recover(); reason != nil {
			result = celResult{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), celTime)
	defer cancel()
	value, _, err := program.ContextEval(ctx, values)
	if err != nil {
		return celResult{Error: err.Error()}
	}
	return celResult{Value: celText(value)}
}

func celText(value ref.Val) string {
	switch value := value.(type) {
	case types.Bool:
		return strconv.FormatBool(bool(value))
	default:
		return value.Type().TypeName()
	}
}

// decodeJSON reads a whole number as an `int`, or as a `uint` beyond its range, and any
// other number as a `double`, as the gateway does.
func decodeJSON(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return numbers(value)
}

func numbers(value any) (any, error) {
	switch value := value.(type) {
	case json.Number:
		if whole, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
			return whole, nil
		}
		if whole, err := strconv.ParseUint(value.String(), 10, 64); err == nil {
			return whole, nil
		}
		return value.Float64()
	case []any:
		for at, item := range value {
			converted, err := numbers(item)
			if err != nil {
				return nil, err
			}
			value[at] = converted
		}
		return value, nil
	case map[string]any:
		for key, item := range value {
			converted, err := numbers(item)
			if err != nil {
				return nil, err
			}
			value[key] = converted
		}
		return value, nil
	default:
		return value, nil
	}
}
