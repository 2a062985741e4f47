class Cluster:
    name = "cluster"
    port_names = ()
    def layout(self, launcher, ports):
        raise NotImplementedError
