package storage

import (
	"fmt"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// BenchmarkWrite is one call with so many entries of 100 bytes, each in a write of its own, and a
// snapshot of 100 kB after each 10,000 entries.
func BenchmarkWrite(b *testing.B) {
	for _, entries := range []int{1, 16, 128} {
		for _, careless := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/sync=%v", entries, !careless), func(b *testing.B) {
				benchmarkWrite(b, entries, careless)
			})
		}
	}
}

func benchmarkWrite(b *testing.B, entries int, careless bool) {
	s := reopen(b, newNode(b), options{careless: careless})
	defer s.Close()
	next, from := uint64(2), uint64(2)
	sc := newScript(1)
	data, table := sc.bytes(100), sc.bytes(100_000)
	for b.Loop() {
		var writes []replica.Write
		for range entries {
			writes = append(writes, replica.Write{
				HardState: &pb.HardState{Term: new(uint64(1)), Vote: new(uint64(17)), Commit: new(next - 1)},
				Entries: []*pb.Entry{{
					Index: new(next), Term: new(uint64(1)), Type: pb.EntryNormal.Enum(), Data: data,
				}},
			})
			next++
		}
		if next-from > 10_000 {
			from = next
			writes = append(writes, replica.Write{Snapshot: &pb.Snapshot{Data: table, Metadata: &pb.SnapshotMetadata{
				Index: new(next - 1), Term: new(uint64(1)), ConfState: &pb.ConfState{Voters: []uint64{17}},
			}}})
		}
		if err := s.Write(writes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*entries)/b.Elapsed().Seconds(), "entries/s")
}
