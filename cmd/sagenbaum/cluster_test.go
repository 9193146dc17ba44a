package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsconf "github.com/nats-io/nats-server/v2/conf"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The servers of a layout of an earlier version, which does not name the folder of their data, keep
// it; where no one knows it, it is asked for.
func TestTheStoreOfAnEarlierClusterStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	args := []string{"cluster", "config", dir}
	cmdtest.Run(t, append(args, "--store-dir", "/data/nats", "--server", "n1=192.0.2.1", "--server", "n2=192.0.2.2",
		"--server", "n3=192.0.2.3", "--host", "a")...).Wants(t, "cluster config", cli.ExitGood, "next: copy")
	layout, conf := filepath.Join(dir, "cluster.json"), filepath.Join(dir, "n1", "nats.conf")
	forget := func() {
		t.Helper()
		text, err := os.ReadFile(layout)
		if err != nil {
			t.Fatal(err)
		}
		without := strings.Replace(string(text), `"store_dir"`, `"was"`, 1)
		if without == string(text) {
			t.Fatalf("%s names no folder: %s", layout, text)
		}
		if err := os.WriteFile(layout, []byte(without), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	cmdtest.Run(t, args...).Wants(t, "cluster config", cli.ExitGood, "next: copy")
	if text, err := os.ReadFile(conf); err != nil || !strings.Contains(string(text), `store_dir: "/data/nats"`) {
		t.Errorf("%v\n%s", err, text)
	}
	forget()
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	cmdtest.Run(t, args...).Wants(t, "cluster config", cli.ExitUsage, "--store-dir DIR")
}

// TestAServerThatHangsIsLeftSoon: a command that goes to a worker of it is lost, and is an attempt.
func TestAServerThatHangsIsLeftSoon(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	cmdtest.Run(t, "cluster", "config", dir, "--store-dir", "/data/nats", "--server", "n1=192.0.2.1", "--server",
		"n2=192.0.2.2", "--server", "n3=192.0.2.3", "--host", "a").Wants(t, "cluster config", cli.ExitGood, "next: copy")
	routes, err := natsconf.ParseFile(filepath.Join(dir, "n1", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, _ := routes["cluster"].(map[string]any)
	every, err := time.ParseDuration(fmt.Sprint(cluster["ping_interval"]))
	most, _ := cluster["ping_max"].(int64)
	if err != nil || every*time.Duration(most+1) > 10*time.Second {
		t.Errorf("%v of %v, %v", most, every, err)
	}
}
