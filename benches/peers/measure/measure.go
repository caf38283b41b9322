// Package measure times the peers alike and prints what it found.
//
// In: a body to repeat. Out: one JSON object a line on standard output.
package measure

import (
	"encoding/json"
	"os"
	"slices"
	"time"
)

// sampleTime is how long one sample lasts at least, so that the clock's own
// cost and grain disappear in it.
const sampleTime = 2 * time.Millisecond

// Result is one line of output.
type Result struct {
	// Name of the question, the same on every side of the comparison.
	Name string `json:"name"`
	// Nanoseconds for one answer: the median over the samples.
	Nanoseconds float64 `json:"nanoseconds"`
	// Samples taken.
	Samples int `json:"samples"`
	// ScaledFrom is how many answers were timed where the whole question would
	// have taken too long; Nanoseconds is then scaled up to the whole.
	ScaledFrom int `json:"scaled_from,omitempty"`
}

// Emit prints one result as a line of JSON.
func Emit(r Result) error {
	return json.NewEncoder(os.Stdout).Encode(r)
}

// Once times `once` for about `budget` and gives the median.
//
// The first call is not counted. Each sample repeats `once` so often that it
// lasts at least sampleTime; slower bodies make a sample each.
func Once(name string, budget time.Duration, once func() error) (Result, error) {
	start := time.Now()
	if err := once(); err != nil {
		return Result{}, err
	}
	repeat := 1
	if one := time.Since(start); one < sampleTime {
		repeat = int(sampleTime/max(one, time.Nanosecond)) + 1
	}
	var samples []float64
	for end := time.Now().Add(budget); time.Now().Before(end) || len(samples) < 3; {
		start := time.Now()
		for range repeat {
			if err := once(); err != nil {
				return Result{}, err
			}
		}
		took := time.Since(start)
		samples = append(samples, float64(took)/float64(repeat))
		if took < sampleTime/2 {
			repeat *= 2
			samples = samples[:0]
		}
	}
	slices.Sort(samples)
	return Result{Name: name, Nanoseconds: samples[len(samples)/2], Samples: len(samples)}, nil
}
