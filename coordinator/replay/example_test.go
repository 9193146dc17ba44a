package replay_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/executor/host"
)

// A function that is run again after its process is gone, with what undoes each
// action beside it. The first process ends after the hotel; the second finds the hotel
// booked, cannot have the flight, and gives the hotel back.
func ExampleRun() {
	nc, stop := serverAndExecutor() // in production: connect.Default()
	defer stop()
	for process := range 2 {
		ctx, end := context.WithCancel(context.Background())
		c, err := coordinator.New(coordinator.Config{Conn: nc, Tenant: "default", Agent: "travel"})
		must(err)
		trip := replay.Config{Plan: coordinator.PlanSpec{ID: "trip-7", Owner: "ana"}, Function: "book-trip"}
		err = replay.Run(ctx, c, trip, func(ctx context.Context, p *replay.Plan) error {
			hotel, err := p.Do(ctx, replay.Action{
				ID: "hotel", Capability: "hotel.book", Input: "Rome",
				Undo: &replay.Undo{Handler: func(_ context.Context, u replay.UndoCall) error {
					fmt.Printf("give back %s\n", u.Output)
					return nil
				}},
			}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				fmt.Println("book a hotel")
				return coordinator.Outcome{Output: "room 12"}, nil
			})
			if err != nil {
				return err
			}
			fmt.Printf("process %d has %s\n", process+1, hotel)
			if process == 0 {
				end() // as if it were killed
				return ctx.Err()
			}
			_, err = p.Do(ctx, replay.Action{ID: "flight", Capability: "flight.book",
				Undo: &replay.Undo{Handler: nothingToUndo}},
				func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					return coordinator.Outcome{}, coordinator.NotTaken(errors.New("no seats"))
				})
			return err
		})
		fmt.Println(err)
		must(c.Close(context.Background()))
		end()
	}
	// Output:
	// book a hotel
	// process 1 has "room 12"
	// cannot run book-trip under plan "trip-7": nothing is said of its end: context canceled
	// process 2 has "room 12"
	// give back "room 12"
	// plan "trip-7" is compensated (no seats): no seats
}

func nothingToUndo(context.Context, replay.UndoCall) error { return nil }

// serverAndExecutor starts both in this process, as `sagenbaum serve` does.
func serverAndExecutor() (*nats.Conn, func()) {
	dir, err := os.MkdirTemp("", "sagenbaum")
	must(err)
	s, err := host.Start(context.Background(), host.LocalConfig{Dir: dir})
	must(err)
	nc, err := s.Connect()
	must(err)
	return nc, func() {
		must(s.Close())
		must(os.RemoveAll(dir))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
