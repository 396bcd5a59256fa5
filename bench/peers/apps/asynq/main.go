// asynq on Redis, with weighted queues: one a level, or one a task, as PEERS_QUEUES says. A queue has
// to be declared before the server starts, and new weights need a new server.
//
// `feed` follows orders on stdin, `work` works until stdin ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const clients = 8

var body = strings.Repeat("x", 150)

type push struct {
	Task  string `json:"task"`
	Seq   int    `json:"seq"`
	Level string `json:"level"`
	Body  string `json:"body"`
}

type line struct {
	Task  string  `json:"task"`
	Seq   int     `json:"seq"`
	Level string  `json:"level"`
	AtMs  float64 `json:"at_ms"`
}

func main() {
	redis, err := asynq.ParseRedisURI(os.Getenv("PEERS_REDIS"))
	must(err)
	if os.Args[1] == "feed" {
		feed(redis)
	} else {
		work(redis)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func queueOf(task, level string) string {
	if os.Getenv("PEERS_QUEUES") == "task" {
		return task
	}
	return level
}

func feed(redis asynq.RedisConnOpt) {
	client := asynq.NewClient(redis)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		pushes, err := strconv.Atoi(words[3])
		must(err)
		submit(client, words[1], words[2], pushes)
		fmt.Println("ok")
	}
	must(client.Close())
}

// submit enqueues one by one, as asynq does, from several goroutines.
func submit(client *asynq.Client, task, level string, pushes int) {
	seqs := make(chan int)
	var busy sync.WaitGroup
	for range clients {
		busy.Go(func() {
			for seq := range seqs {
				payload, err := json.Marshal(push{task, seq, level, body})
				must(err)
				_, err = client.Enqueue(asynq.NewTask("push", payload), asynq.Queue(queueOf(task, level)))
				must(err)
			}
		})
	}
	for seq := 1; seq <= pushes; seq++ {
		seqs <- seq
	}
	close(seqs)
	busy.Wait()
}

func work(redis asynq.RedisConnOpt) {
	file, err := os.OpenFile(os.Getenv("PEERS_LOG"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(err)
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var got push
		if err := json.Unmarshal(task.Payload(), &got); err != nil {
			return err
		}
		atMs := float64(time.Now().UnixMicro()) / 1000
		text, err := json.Marshal(line{got.Task, got.Seq, got.Level, atMs})
		if err != nil {
			return err
		}
		if _, err = file.Write(append(text, '\n')); err != nil {
			return err
		}
		time.Sleep(workFor(got.Seq))
		return nil
	})
	server := serve(redis, handler, "6:3:1")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		server.Shutdown()
		server = serve(redis, handler, strings.Fields(orders.Text())[1])
	}
	server.Shutdown()
}

// workFor is from 90 to 110 ms, as in handler.py.
func workFor(seq int) time.Duration {
	return time.Duration(100+seq*37%21-10) * time.Millisecond
}

func serve(redis asynq.RedisConnOpt, handler asynq.Handler, weights string) *asynq.Server {
	slots, err := strconv.Atoi(os.Getenv("PEERS_SLOTS"))
	must(err)
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: slots,
		Queues:      queues(weights),
		LogLevel:    asynq.WarnLevel,
	})
	must(server.Start(handler))
	return server
}

// queues gives each the weight of its level. Those of tasks share it by being as many a level.
func queues(weights string) map[string]int {
	byLevel := map[string]int{}
	for place, word := range strings.Split(weights, ":") {
		weight, err := strconv.Atoi(word)
		must(err)
		byLevel[[]string{"high", "medium", "low"}[place]] = weight
	}
	var tasks [][2]string
	must(json.Unmarshal([]byte(os.Getenv("PEERS_TASKS")), &tasks))
	found := map[string]int{}
	for _, task := range tasks {
		found[queueOf(task[0], task[1])] = byLevel[task[1]]
	}
	return found
}
