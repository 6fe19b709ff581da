package docs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// The code of docs/running.md.

func byURL(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url) // rediss://user:secret@redis.example.com:6380/0
	if err != nil {
		return nil, err
	}
	cli := redis.NewClient(options)
	return cli, nil
}

func byTLS(password string, authorities *x509.CertPool) *redis.Client {
	cli := redis.NewClient(&redis.Options{
		Addr:      "redis.example.com:6380",
		Username:  "orders",
		Password:  password,
		TLSConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
	})
	return cli
}

func bySentinel(password string) *redis.Client {
	cli := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "main",
		SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
		Password:      password,
	})
	return cli
}

func toCluster(password string) *redis.ClusterClient {
	cli := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:    []string{"node-1:6379", "node-2:6379", "node-3:6379"},
		Password: password,
	})
	return cli
}

func alive(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
}

func ready(mux *http.ServeMux, cli redis.UniversalClient) {
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := cli.Ping(ctx).Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

func placeOrder(r *http.Request, orders *delayqueue.DelayQueue, id string) error {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, err := orders.Send(ctx, id, delayqueue.WithKey("order-"+id, delayqueue.Keep), delayqueue.WithDelay(15*time.Minute))
	return err
}

func ofStaging(cli redis.UniversalClient) *delayqueue.DelayQueue {
	orders := delayqueue.NewQueue("orders", cli, nil, delayqueue.UseCustomPrefix("staging"))
	return orders
}

func deleteIt(ctx context.Context, cli redis.UniversalClient) error {
	err := ops.Of(delayqueue.NewMonitor("orders", cli)).DeleteQueue(ctx, true)
	return err
}

// A service that sends, and is asked whether it is ready. The other clients of the page are made, and reach nothing.
func Example_running() {
	cli, end := embedded()
	defer end()
	for _, other := range []redis.UniversalClient{byTLS("secret", nil), bySentinel("secret"), toCluster("secret")} {
		defer other.Close()
	}
	mux := http.NewServeMux()
	alive(mux)
	ready(mux, cli)
	for _, probe := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest("GET", probe, nil))
		fmt.Println(probe, answer.Code)
	}

	byName, err := byURL("redis://" + cli.(*redis.Client).Options().Addr)
	if err != nil {
		panic(err)
	}
	defer byName.Close()
	if err := placeOrder(httptest.NewRequest("POST", "/orders/7", nil), ofStaging(byName), "7"); err != nil {
		panic(err)
	}
	counts, err := delayqueue.NewMonitor("orders", cli, delayqueue.UseCustomPrefix("staging")).Counts(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(counts.Pending, "waits")

	other := delayqueue.NewQueue("orders", byName, nil)
	if err := placeOrder(httptest.NewRequest("POST", "/orders/8", nil), other, "8"); err != nil {
		panic(err)
	}
	if err := deleteIt(context.Background(), byName); err != nil {
		panic(err)
	}
	_, err = delayqueue.NewMonitor("orders", byName).Counts(context.Background())
	fmt.Println("deleted:", errors.Is(err, delayqueue.ErrNoQueue))
	// Output:
	// /livez 200
	// /readyz 200
	// 1 waits
	// deleted: true
}
