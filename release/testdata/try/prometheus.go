package main

import (
	"fmt"
	"os"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

func main() {
	redisCli := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")})
	if err := delayqueue.NewPublisher("orders", redisCli).SendDelayMsg("42", 0); err != nil {
		panic(err)
	}
	metrics := promqueue.NewCollector(promqueue.Config{})
	metrics.Watch(delayqueue.NewMonitor("orders", redisCli))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		panic(fmt.Sprint(families, err))
	}
	fmt.Println("handled 42")
}
