// Publishes COUNT messages with Pulsar's Go client: goclient URL TOPIC COMPRESSION BATCH COUNT
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

var codecs = map[string]pulsar.CompressionType{
	"NONE": pulsar.NoCompression, "LZ4": pulsar.LZ4, "ZLib": pulsar.ZLib, "ZSTD": pulsar.ZSTD,
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	batch, err := strconv.Atoi(os.Args[4])
	check(err)
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithSlog(quiet)})
	check(err)
	defer client.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: os.Args[2], CompressionType: codecs[os.Args[3]], DisableBatching: batch == 0,
		BatchingMaxMessages: uint(max(2, batch)), BatchingMaxPublishDelay: 10 * time.Second,
	})
	check(err)
	defer producer.Close()
	for number := 0; number < count; number++ {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload:    []byte(strings.Repeat(fmt.Sprintf("go %d ", number), 1+number%17)),
			Key:        fmt.Sprintf("k%d", number%5),
			Properties: map[string]string{"n": strconv.Itoa(number)},
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.FlushWithCtx(context.Background()))
}
