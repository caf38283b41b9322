// Package measure times functions in the same way for every peer, and prints each
// result as a line of JSON.
package measure

import (
	"encoding/json"
	"os"
	"slices"
	"time"
)

// sampleTime is about the least duration of a sample, so that the cost and resolution of
// the clock do not matter.
const sampleTime = 2 * time.Millisecond

// Result is one line of output.
type Result struct {
	// Name of the question, the same for Tollgate and every peer.
	Name string `json:"name"`
	// Nanoseconds for one answer: the median over the samples.
	Nanoseconds float64 `json:"nanoseconds"`
	// Number of samples.
	Samples int `json:"samples"`
	// ScaledFrom is the number of answers that were timed, if timing all of them
	// would have taken too long. Nanoseconds is then scaled up to all answers.
	ScaledFrom int `json:"scaled_from,omitempty"`
}

// Emit prints one result as a line of JSON.
func Emit(r Result) error {
	return json.NewEncoder(os.Stdout).Encode(r)
}

// Once times `once` for about `budget` and returns the median.
//
// The first call is not counted. Each sample repeats `once` until it lasts at
// least about sampleTime; a call that takes longer is a separate sample.
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
