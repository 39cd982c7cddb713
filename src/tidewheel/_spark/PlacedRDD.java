package tidewheel;

import java.util.Collections;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;

/** The rows of another RDD, each partition on the host that is preferred for it. */
public class PlacedRDD extends RDD {
    private final String[] hosts;

    public PlacedRDD(RDD rows, String[] hosts) {
        super(rows, rows.elementClassTag());
        this.hosts = hosts;
    }

    private RDD rows() {
        return ((Dependency) dependencies().head()).rdd();
    }

    public Partition[] getPartitions() {
        return rows().partitions();
    }

    public scala.collection.Iterator compute(Partition partition, TaskContext context) {
        return rows().iterator(partition, context);
    }

    public scala.collection.immutable.Seq getPreferredLocations(Partition partition) {
        return PythonUtils.toSeq(Collections.singletonList(hosts[partition.index()]));
    }
}
