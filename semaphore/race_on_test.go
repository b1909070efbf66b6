//go:build race

package semaphore

const underRaceDetector = true
