package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// requestLine asks for the attributes that kube-apiserver derives from a request.
type requestLine struct {
	Method string `json:"method"`
	// Path and query, as sent.
	Target string `json:"target"`
}

// requestAttributes are those that kube-apiserver authorizes. They are bytes, because a
// path need not be UTF-8.
type requestAttributes struct {
	// The error if kube-apiserver refuses the request before authorization.
	Refused string `json:"refused"`
	// The error if it cannot read the options of a list; it refuses these after authorization.
	Unreadable  string `json:"unreadable"`
	IsResource  bool   `json:"isResource"`
	Path        []byte `json:"path"`
	Verb        []byte `json:"verb"`
	APIGroup    []byte `json:"apiGroup"`
	APIVersion  []byte `json:"apiVersion"`
	Namespace   []byte `json:"namespace"`
	Resource    []byte `json:"resource"`
	Subresource []byte `json:"subresource"`
	Name        []byte `json:"name"`
}

// requestInfo is configured as in kube-apiserver.
var requestInfo = &apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func attributes(asked requestLine) (requestAttributes, error) {
	text := asked.Method + " " + asked.Target + " HTTP/1.1\r\nHost: cluster.example\r\n\r\n"
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return requestAttributes{}, fmt.Errorf("no HTTP request: %w", err)
	}
	info, err := requestInfo.NewRequestInfo(request)
	given := requestAttributes{
		IsResource:  info.IsResourceRequest,
		Path:        []byte(info.Path),
		Verb:        []byte(info.Verb),
		APIGroup:    []byte(info.APIGroup),
		APIVersion:  []byte(info.APIVersion),
		Namespace:   []byte(info.Namespace),
		Resource:    []byte(info.Resource),
		Subresource: []byte(info.Subresource),
		Name:        []byte(info.Name),
	}
	if err != nil {
		given.Refused = err.Error()
	}
	options := metainternalversion.ListOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(request.URL.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		given.Unreadable = err.Error()
	}
	return given, nil
}
