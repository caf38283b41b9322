package main

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// manualSync asks whether the sync windows of a project permit a manual sync of an Application.
type manualSync struct {
	Windows     v1alpha1.SyncWindows            `json:"windows"`
	Application string                          `json:"application"`
	Destination v1alpha1.ApplicationDestination `json:"destination"`
	// When: a time since 1970, after 1999.
	Seconds     int64 `json:"seconds"`
	Nanoseconds int64 `json:"nanoseconds"`
}

// syncVerdict says whether it is permitted.
type syncVerdict struct {
	CanSync bool `json:"canSync"`
}

func canSync(asked manualSync) (syncVerdict, error) {
	var given outcome[syncVerdict]
	atTime(time.Unix(asked.Seconds, asked.Nanoseconds), func() { given = single(asked, canSyncNow) })
	if given.Value == nil {
		return syncVerdict{}, errors.New(given.Error)
	}
	return *given.Value, nil
}

// canSyncNow answers as Argo CD's server does before a sync.
func canSyncNow(asked manualSync) (syncVerdict, error) {
	application := &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Name: asked.Application, Namespace: namespace},
		Spec:       v1alpha1.ApplicationSpec{Destination: asked.Destination},
	}
	can, err := asked.Windows.Matches(application).CanSync(true, nil)
	return syncVerdict{CanSync: can}, err
}

var (
	// clocked runs functions with the test that a fake clock needs.
	clocked      = make(chan func(*testing.T))
	startClocked sync.Once
)

// atTime runs a function for which it is this time, which Argo CD reads from the clock.
func atTime(now time.Time, run func()) {
	startClocked.Do(func() {
		test := testing.InternalTest{Name: "clock", F: func(t *testing.T) {
			for run := range clocked {
				run(t)
			}
		}}
		matchAll := func(string, string) (bool, error) { return true, nil }
		go testing.Main(matchAll, []testing.InternalTest{test}, nil, nil)
	})
	done := make(chan struct{})
	clocked <- func(t *testing.T) {
		defer close(done)
		synctest.Test(t, func(*testing.T) {
			time.Sleep(time.Until(now))
			run()
		})
	}
	<-done
}
