// A kubelet for tests. It serves only what kube-apiserver requests for exec, attach,
// port-forward and logs of a pod, with the protocols of a real kubelet
// (k8s.io/cri-streaming).
//
// There are no containers: a pod is an empty folder, and its commands are processes of
// this machine that run in it and end with this program. Clients need a certificate of
// the authority that a flag names. Connections stay on loopback.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// A stream without a byte for so long is closed, as the real kubelet does.
const idle = 4 * time.Hour

func main() {
	certificate := flag.String("tls-cert-file", "", "certificate, PEM")
	key := flag.String("tls-private-key-file", "", "its key, PEM")
	clients := flag.String("client-ca-file", "", "authority of the clients, PEM")
	port := flag.String("port-file", "port", "file that gets the port once it is open")
	flag.Parse()
	if err := serve(*certificate, *key, *clients, *port); err != nil {
		log.Fatal(err)
	}
}

func serve(certificate, key, clients, portFile string) error {
	pem, err := os.ReadFile(clients)
	if err != nil {
		return err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return errors.New("no certificate in " + clients)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs("pods")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// Under its name the file is whole.
	number := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(portFile+".partial", []byte(number), 0o600); err != nil {
		return err
	}
	if err := os.Rename(portFile+".partial", portFile); err != nil {
		return err
	}
	server := http.Server{
		Handler: routes(&pods{folder: folder}),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    authority,
			// Upgrades are of HTTP/1.1.
			NextProtos: []string{"http/1.1"},
		},
	}
	return server.ServeTLS(listener, "", "")
}

// The paths kube-apiserver asks for (k8s.io/kubernetes/pkg/registry/core/pod).
func routes(pods *pods) http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("/exec/{namespace}/{pod}/{container}", pods.exec)
	routes.HandleFunc("/attach/{namespace}/{pod}/{container}", pods.attach)
	routes.HandleFunc("/portForward/{namespace}/{pod}", pods.portForward)
	routes.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", pods.logs)
	return routes
}

func (pods *pods) exec(response http.ResponseWriter, request *http.Request) {
	options, err := remotecommand.NewOptions(request)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(response, request, pods, name(request), "", request.PathValue("container"),
		request.URL.Query()["command"], options, idle, remotecommand.DefaultStreamCreationTimeout,
		remotecommand.SupportedStreamingProtocols)
}

func (pods *pods) attach(response http.ResponseWriter, request *http.Request) {
	options, err := remotecommand.NewOptions(request)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(response, request, pods, name(request), "", request.PathValue("container"),
		options, idle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (pods *pods) portForward(response http.ResponseWriter, request *http.Request) {
	// Ports are in the URL for WebSockets without SPDY in them, else in the streams.
	options, err := portforward.NewV4Options(request)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(response, request, pods, name(request), "", options, idle,
		remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// Ten lines of the past, and with `follow` one more every 200 ms until the client
// has had enough.
func (pods *pods) logs(response http.ResponseWriter, request *http.Request) {
	const past = 10
	query := request.URL.Query()
	first := 1
	if tail := query.Get("tailLines"); tail != "" {
		lines, err := strconv.Atoi(tail)
		if err != nil || lines < 0 {
			http.Error(response, "tailLines is no number of lines", http.StatusBadRequest)
			return
		}
		first = max(past-lines, 0) + 1
	}
	response.Header().Set("Content-Type", "text/plain")
	controller := http.NewResponseController(response)
	line := func(number int) error {
		var moment string
		if query.Get("timestamps") == "true" {
			moment = time.Now().UTC().Format(time.RFC3339Nano) + " "
		}
		if _, err := fmt.Fprintf(response, "%sline %d of %s\n", moment, number, name(request)); err != nil {
			return err
		}
		return controller.Flush()
	}
	for number := first; number <= past; number++ {
		if line(number) != nil {
			return
		}
	}
	if query.Get("follow") != "true" {
		return
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for number := past + 1; ; number++ {
		select {
		case <-request.Context().Done():
			return
		case <-ticks.C:
			if line(number) != nil {
				return
			}
		}
	}
}

// What a pod is called here, and its folder.
func name(request *http.Request) string {
	return request.PathValue("namespace") + "/" + request.PathValue("pod")
}
