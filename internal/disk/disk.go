// Package disk tells a full disk from other errors, on each operating system.
package disk
