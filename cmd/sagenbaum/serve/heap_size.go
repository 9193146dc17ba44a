package serve

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// memorySize is the memory that this process may use, in bytes: that of the machine, or less
// where a control group (version 1 or 2) bounds it. root is "/". 0: the system does not say.
func memorySize(root string) uint64 {
	size := machineMemory(root)
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // none elsewhere
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		folder, name := "sys/fs/cgroup", "memory.max"
		switch {
		case controllers == "memory":
			folder, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case controllers != "":
			continue
		}
		// A group is bounded by those above it. In a container the folder may be the group's own.
		for group = path.Join("/", group); ; group = path.Dir(group) {
			limit, err := os.ReadFile(filepath.Join(root, folder, group, name))
			if n, bad := strconv.ParseUint(string(bytes.TrimSpace(limit)), 10, 64); err == nil &&
				bad == nil && n > 0 && (size == 0 || n < size) {
				size = n
			}
			if group == "/" {
				break
			}
		}
	}
	return size
}

// machineMemory is the memory of the machine, in bytes; 0: it is not known.
func machineMemory(root string) uint64 {
	file, err := os.Open(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemTotal:" {
			kb, _ := strconv.ParseUint(fields[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}
