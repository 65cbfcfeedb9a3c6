// Go's net/http: one request per line of standard input, one answer per line of standard output, both JSON, over one
// http.Client with the transport's own defaults. With an argument it trusts that certificate.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

type asked struct {
	URL     string      `json:"url"`
	Headers [][2]string `json:"headers"`
	Body    string      `json:"body"`
}

type answer struct {
	Version string      `json:"version"` // 1.1 or 2
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"` // encoding/json writes it in base64
	Failed  *failure    `json:"failed,omitempty"`
}

type failure struct {
	Message string `json:"message"`
}

func main() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if len(os.Args) > 1 {
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted(os.Args[1])}
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var wanted asked
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			log.Fatal(err)
		}
		got, err := post(client, wanted)
		if err != nil {
			got = answer{Failed: &failure{err.Error()}}
		}
		if err := answers.Encode(got); err != nil {
			log.Fatal(err)
		}
	}
}

func post(client *http.Client, wanted asked) (answer, error) {
	request, err := http.NewRequest("POST", wanted.URL, strings.NewReader(wanted.Body))
	if err != nil {
		return answer{}, err
	}
	for _, line := range wanted.Headers {
		request.Header.Add(line[0], line[1])
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	version := strings.TrimSuffix(strings.TrimPrefix(response.Proto, "HTTP/"), ".0")
	got := answer{Version: version, Status: response.StatusCode, Body: body}
	for name, values := range response.Header {
		for _, value := range values {
			got.Headers = append(got.Headers, [2]string{name, value})
		}
	}
	return got, nil
}

func trusted(file string) *x509.CertPool {
	pem, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatalf("%s holds no certificate", file)
	}
	return pool
}
