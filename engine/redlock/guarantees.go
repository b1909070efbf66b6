package redlock

import "github.com/lockkeeper/lockkeeper"

// claimed are the features that a majority of independent servers can carry.
const claimed = lockkeeper.FeatureFIFO |
	lockkeeper.FeatureManyTargets |
	lockkeeper.FeaturePriority |
	lockkeeper.FeatureSteal |
	lockkeeper.FeatureAmend |
	lockkeeper.FeatureLongestHold |
	lockkeeper.FeatureList |
	lockkeeper.FeatureRevoke |
	lockkeeper.FeatureFences |
	lockkeeper.FeatureOnce |
	lockkeeper.FeatureMeasuredSteal

// Guarantees implements lockkeeper.Engine.
func (e *Engine) Guarantees() lockkeeper.Guarantees { return guarantees() }

func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       "redis",
		Features:   claimed,
		Reach:      lockkeeper.OnNetwork,
		Survives:   lockkeeper.SurvivesKill,
		Fences:     lockkeeper.FencesForever,
		FenceScope: lockkeeper.FencesPerPath,
		Clock:      lockkeeper.ClockServers,
		Notes: lockkeeper.Notes{
			Survives: "and the loss of any minority of the servers at a time, with their data; power loss of a majority " +
				"only if its servers run with appendonly yes and appendfsync always",
			Fences:  "for each path, while a majority of the servers keeps its data",
			Clock:   "each counts for itself; they need not agree, and their rates may differ by 1 %",
			Instead: "use an engine with one store, such as sqlite: on one machine, postgres: or lk: on a network",
		},
		Breaks: "a majority of servers that lose their data at once; a server that forgets what it has acknowledged and " +
			"hides it, such as a failover to a replica or a restored backup; clocks that jump; keys that are changed by hand",
	}
}
