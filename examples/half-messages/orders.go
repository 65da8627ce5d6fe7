// Places orders and announces them with half messages: plain HTTP, without an SDK.
//
//	go run orders.go                        listens on $PORT (8081)
//	curl -X POST 127.0.0.1:8081/orders/7    places order 7
//
// A file per order stands for a store without a barrier table. So Landfall asks this service about an order whose
// decision is missing: POST /state. `?crash=before-commit` and `?crash=after-commit` end the process at that point.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	landfall = env("LANDFALL_URL", "http://127.0.0.1:7700")
	folder   = env("ORDERS", "orders")
	address  string
	// Orders whose local transaction is still running here.
	running sync.Map
)

func env(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

func post(path string, body any) (map[string]any, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	response, err := http.Post(landfall+path, "application/json", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s %s", path, response.Status, text)
	}
	var answer map[string]any
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

func place(order, crash string) error {
	end := func(step string) {
		if step == crash {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	running.Store(order, true)
	defer running.Delete(order)
	number, err := strconv.Atoi(order)
	if err != nil {
		return err
	}
	half, err := post("/v1/half-messages", map[string]any{
		"topic": "orders", "key": "order-" + order, "kind": "OrderPlaced", "payload": map[string]any{"order": number},
		"business_type": "order", "business_id": order, "check_back": map[string]any{"http": "http://" + address + "/state"},
	})
	if err != nil {
		return err
	}
	name := filepath.Join(folder, order)
	if err := os.WriteFile(name+".new", []byte(order), 0o644); err != nil {
		return err
	}
	end("before-commit")
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	end("after-commit")
	_, err = post(fmt.Sprintf("/v1/half-messages/%s/commit", half["id"]), nil)
	return err
}

// Returns whether the order exists. While it is being placed that is unknown: "rolled_back" would be final.
func state(order string) string {
	if _, isRunning := running.Load(order); isRunning {
		return "unknown"
	}
	_, err := os.Stat(filepath.Join(folder, filepath.Base(order)))
	switch {
	case err == nil:
		return "committed"
	case os.IsNotExist(err):
		return "rolled_back"
	default:
		return "unknown"
	}
}

// Verifies a Standard Webhooks signature.
func isSigned(header http.Header, body []byte) bool {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("SECRET"), "whsec_"))
	seconds, invalid := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil || invalid != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", header.Get("webhook-id"), seconds, body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, given := range strings.Fields(header.Get("webhook-signature")) {
		if hmac.Equal([]byte(given), []byte(expected)) {
			return true
		}
	}
	return false
}

func answerState(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<16))
	// An answer other than 200 is unknown, so a forged or damaged question decides nothing.
	if err != nil || !isSigned(request.Header, body) {
		http.Error(response, "the signature is missing or wrong", http.StatusUnauthorized)
		return
	}
	var question struct {
		BusinessID string `json:"business_id"`
	}
	if err := json.Unmarshal(body, &question); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	json.NewEncoder(response).Encode(map[string]string{"state": state(question.BusinessID)})
}

func answerOrder(response http.ResponseWriter, request *http.Request) {
	if err := place(request.PathValue("order"), request.URL.Query().Get("crash")); err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.WriteHeader(http.StatusCreated)
}

func main() {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+env("PORT", "8081"))
	if err != nil {
		log.Fatal(err)
	}
	address = listener.Addr().String()
	fmt.Println("listening on", address)
	http.HandleFunc("POST /state", answerState)
	http.HandleFunc("POST /orders/{order}", answerOrder)
	log.Fatal(http.Serve(listener, nil))
}
