package main

import (
	"context"
	"errors"

	"example/hqueue/gen/hub"
	"example/hqueue/gen/subscriber"
	"github.com/apache/thrift/lib/go/thrift"
)

// callHub calls a hub of a queue, and leaves out what can be left out: Go has nil for a struct, and
// Thrift writes that as a struct without fields.
func callHub(transport thrift.TTransport, queue string) error {
	client := hub.NewHQueueHubServiceClientFactory(transport, thrift.NewTBinaryProtocolFactoryDefault())
	ctx := context.Background()
	for _, step := range []func(context.Context, *hub.HQueueHubServiceClient, string) error{
		subscribe, publishOnce, leaveRules, leaveWhatIsNeeded,
	} {
		if err := step(ctx, client, queue); err != nil {
			return err
		}
	}
	return nil
}

func subscribe(ctx context.Context, client *hub.HQueueHubServiceClient, queue string) error {
	bound := int32(9)
	steps := []struct {
		what        string
		mode        hub.TSubscribeMode
		preferences *hub.TPreferences
	}{
		{"given", hub.TSubscribeMode_CREATE, &hub.TPreferences{
			MessageBound: &bound, Application: map[string]string{"team": "ü"},
		}},
		{"left out", hub.TSubscribeMode_ATTACH, nil},
		{"without fields", hub.TSubscribeMode_ATTACH, &hub.TPreferences{}},
		{"defaults", hub.TSubscribeMode_ATTACH, &hub.TPreferences{Application: map[string]string{}}},
	}
	for _, step := range steps {
		found, err := client.Subscribe(ctx, queue, "sub", "t", step.mode, nil, step.preferences, false)
		if err != nil {
			return err
		}
		if err := show(step.what, found.Preferences); err != nil {
			return err
		}
	}
	return nil
}

func publishOnce(ctx context.Context, client *hub.HQueueHubServiceClient, queue string) error {
	for _, number := range []int64{0, 1} {
		messages := []*subscriber.TMessage{{Value: []byte("a")}, {Value: []byte{}, Key: []byte{}}}
		done, err := client.PublishOnce(ctx, queue, "me", "t", messages, number, nil, false)
		if err != nil {
			return err
		}
		if err := show("dropped", done.Dropped); err != nil {
			return err
		}
	}
	newest, err := client.NewestNumber(ctx, queue, "me", "t", nil, false)
	if err != nil {
		return err
	}
	return show("newest", newest.Number)
}

func leaveRules(ctx context.Context, client *hub.HQueueHubServiceClient, queue string) error {
	for _, rules := range []*hub.TTopicAccess{{Publish: []string{"me"}, Manage: []string{}}, nil} {
		found, err := client.ChangeAccess(ctx, queue, "me", "t", rules, false)
		if err != nil {
			return err
		}
		if err := show("rules", found); err != nil {
			return err
		}
	}
	return nil
}

// A message and an ID can't be left out.
func leaveWhatIsNeeded(ctx context.Context, client *hub.HQueueHubServiceClient, queue string) error {
	var illegal *hub.TIllegalArgument
	_, err := client.Publish(ctx, queue, "me", "t", nil, false)
	if err := show("illegal", errors.As(err, &illegal)); err != nil {
		return err
	}
	err = client.Consume(ctx, queue, "sub", "t", nil, false)
	return show("illegal", errors.As(err, &illegal))
}
