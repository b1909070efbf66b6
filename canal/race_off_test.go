//go:build !race

package canal

const underRaceDetector = false
