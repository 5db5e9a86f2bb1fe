"""The study of layer elasticity on a cluster: what it runs, and how docs/layer-elasticity.md is made of it."""
