// A client of HQueue's Thrift API and of hubs that knows nothing but the IDL: of that the code under
// gen is made.
//
// Its arguments: "api" or "hub", the address of one and a queue with two partitions. To the API it puts
// messages in each of the four ways, reads partition 1, and writes what came to its output: a JSON
// document a line. A hub it calls with structs that are nil, and writes what it was answered.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"example/hqueue/gen/hqueue"
	"example/hqueue/gen/subscriber"
	"github.com/apache/thrift/lib/go/thrift"
)

const timeout = 60 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(service string, address string, queue string) error {
	socket, err := connect(address)
	if err != nil {
		return err
	}
	transport := thrift.NewTBufferedTransport(socket, 64*1024)
	if err := transport.Open(); err != nil {
		return err
	}
	defer transport.Close()
	if service == "hub" {
		return callHub(transport, queue)
	}
	return callAPI(transport, hqueue.Text(queue))
}

// connect speaks TLS if the environment names its files: those of the authority and of a certificate with
// its key.
func connect(address string) (thrift.TTransport, error) {
	authority, certificate := os.Getenv("TLS_CA"), os.Getenv("TLS_CERTIFICATE")
	if authority == "" {
		return thrift.NewTSocketTimeout(address, timeout)
	}
	trusted, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	config := &tls.Config{RootCAs: pool}
	if certificate != "" {
		own, err := tls.LoadX509KeyPair(certificate, certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return thrift.NewTSSLSocketTimeout(address, config, timeout)
}

func callAPI(transport thrift.TTransport, queue hqueue.Text) error {
	client := hqueue.NewHQueueServiceClientFactory(transport, thrift.NewTBinaryProtocolFactoryDefault())
	ctx := context.Background()
	if err := put(ctx, client, queue); err != nil {
		return err
	}
	if err := scan(ctx, client, queue); err != nil {
		return err
	}
	if err := refused(ctx, client, queue); err != nil {
		return err
	}
	locations, err := client.GetQueueLocations(ctx, queue)
	if err != nil {
		return err
	}
	return show("locations", locations)
}

func message(value string) *subscriber.TMessage {
	return &subscriber.TMessage{Topic: []byte("t"), Value: []byte(value)}
}

func put(ctx context.Context, client *hqueue.HQueueServiceClient, queue hqueue.Text) error {
	full := message("full")
	full.Topic, full.Key = []byte("ü"), []byte("k")
	full.Headers = []*subscriber.THeader{
		{Name: []byte("n"), Value: []byte("1")}, {Name: []byte("n"), Value: []byte{}},
	}
	if err := client.PutMessage(ctx, queue, message("any")); err != nil {
		return err
	}
	if err := client.PutMessages(ctx, queue, []*subscriber.TMessage{message("a"), message("b")}); err != nil {
		return err
	}
	if err := client.PutMessageWithPid(ctx, queue, 1, full); err != nil {
		return err
	}
	var many []*subscriber.TMessage
	for n := 0; n < 100; n++ {
		many = append(many, message(fmt.Sprint(n)))
	}
	if err := client.PutMessagesWithPid(ctx, queue, 1, many); err != nil {
		return err
	}
	return putTwice(ctx, client, queue)
}

// One batch, put twice by its idempotency key, and another one with the same key.
func putTwice(ctx context.Context, client *hqueue.HQueueServiceClient, queue hqueue.Text) error {
	partition := int16(0)
	given := &hqueue.TPut{
		QueueName: &queue, PartitionID: &partition, IdempotencyKey: []byte("once"),
		Messages: []*subscriber.TMessage{message("once"), message("and once")},
	}
	for n := 0; n < 2; n++ {
		answer, err := client.Put(ctx, given)
		if err != nil {
			return err
		}
		if err := show("put", answer); err != nil {
			return err
		}
	}
	given.Messages = given.Messages[:1]
	_, err := client.Put(ctx, given)
	var reused *hqueue.TIdempotencyKeyError
	return show("reused", errors.As(err, &reused) && *reused.CountBefore == 2)
}

func scan(ctx context.Context, client *hqueue.HQueueServiceClient, queue hqueue.Text) error {
	scanner, err := client.MessageScannerOpen(ctx, queue, 1, nil)
	if err != nil {
		return err
	}
	first, err := client.MessageScannerGet(ctx, scanner)
	if err != nil {
		return err
	}
	for came := []*subscriber.TMessage{first}; len(came) > 0; {
		for _, each := range came {
			if err := show("message", each); err != nil {
				return err
			}
		}
		if came, err = client.MessageScannerGetList(ctx, scanner, 30); err != nil {
			return err
		}
	}
	end, err := client.MessageScannerGet(ctx, scanner)
	if err != nil {
		return err
	}
	if err := show("end", !end.IsSetID()); err != nil {
		return err
	}
	return client.MessageScannerClose(ctx, scanner)
}

// Calls that end with the errors of the IDL.
func refused(ctx context.Context, client *hqueue.HQueueServiceClient, queue hqueue.Text) error {
	err := client.PutMessageWithPid(ctx, queue, 2, message("nowhere"))
	var illegal *hqueue.TIllegalArgument
	if err := show("illegal", errors.As(err, &illegal) && illegal.Message != ""); err != nil {
		return err
	}
	err = client.PutMessage(ctx, queue+"-not", message("nowhere"))
	var state *hqueue.TQueueStateError
	found := errors.As(err, &state) && state.Condition == hqueue.TQueueCondition_NOT_FOUND
	if err := show("not found", found); err != nil {
		return err
	}
	_, err = client.MessageScannerGet(ctx, "no such scanner")
	var scanner *hqueue.TScannerNotFound
	return show("no scanner", errors.As(err, &scanner))
}

func show(kind string, what any) error {
	return json.NewEncoder(os.Stdout).Encode([]any{kind, what})
}
